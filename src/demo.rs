//! `redlock demo`.
