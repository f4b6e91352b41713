"""Sessions to tables, tables to answers: no gRPC, no etcd, no clock of its own."""
