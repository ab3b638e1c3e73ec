//! The surroundings of the operator, simulated in memory and in virtual time: a Kubernetes API server, its controllers,
//! Redis masters and the network between all of them.

#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod control_plane;
pub mod controllers;
pub mod conversation;
pub mod kubernetes;
pub mod masters;
pub mod network;
pub mod runtime;
