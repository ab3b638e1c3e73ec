//! Tests the image, built from the Dockerfile of this repository, and the programs that run from it: `make
//! test-image`.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod common;
#[path = "image/container.rs"]
mod container;
#[path = "image/content.rs"]
mod content;
#[path = "image/dockerfile.rs"]
mod dockerfile;
#[path = "image/elf.rs"]
mod elf;
#[path = "image/image.rs"]
mod image;
#[path = "image/names.rs"]
mod names;
#[path = "image/nameserver.rs"]
mod nameserver;
#[allow(dead_code)]
#[path = "operator/replica.rs"]
mod replica;
#[path = "image/runs.rs"]
mod runs;
#[path = "image/trust.rs"]
mod trust;
