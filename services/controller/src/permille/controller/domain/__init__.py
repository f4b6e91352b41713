"""What a recording is and how this machine makes one; neither gRPC nor etcd."""
