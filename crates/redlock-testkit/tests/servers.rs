//! Tests the servers, the observer and the proxy that all other tests rely on.

// The exceptions of the lints for tests cover test functions only, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "servers/executable.rs"]
mod executable;
#[path = "servers/observer.rs"]
mod observer;
#[path = "servers/proxy.rs"]
mod proxy;
#[path = "servers/server.rs"]
mod server;
