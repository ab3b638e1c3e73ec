//! The servers, the observer and the broken network that all other tests rely on do what their tests believe.

// The lints' leave for tests covers test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "servers/observer.rs"]
mod observer;
#[path = "servers/proxy.rs"]
mod proxy;
#[path = "servers/server.rs"]
mod server;
