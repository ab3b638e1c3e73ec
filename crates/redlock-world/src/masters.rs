//! The Redis masters of a quorum.
