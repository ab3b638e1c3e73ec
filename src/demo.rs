//! `redlock demo`.

pub mod redis_server;
