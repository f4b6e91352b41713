"""The controller between the wire, etcd, the object store and the recorder."""
