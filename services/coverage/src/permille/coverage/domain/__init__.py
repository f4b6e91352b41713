"""What to record, where and for how long: no wire, no etcd, no clock."""
