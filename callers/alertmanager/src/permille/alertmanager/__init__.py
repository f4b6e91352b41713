"""A caller of permille: Prometheus Alertmanager's webhook."""
