//! The API server of a cluster.
