//! How the linker lays out the program: what a `redlock run` keeps in memory depends on it (docs/benchmarks.md).

use std::{env, process::Command};

/// The functions that `redlock run` executes, beside each other. `scripts/order-run` writes it.
const FUNCTIONS: &str = "src/run/functions.ld";
/// The first glibc that applies packed relocations.
const PACKED_SINCE: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed={FUNCTIONS}");
    println!("cargo::rerun-if-changed=build.rs");
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        link(&format!("-T{folder}/{FUNCTIONS}"));
        if are_packed_relocations_applied() {
            link("-zpack-relative-relocs");
        }
    }
}

/// An argument that a linker and a C compiler that calls one both read.
fn link(argument: &str) {
    println!("cargo::rustc-link-arg-bin=redlock={argument}");
}

/// By the program itself with musl, which is part of it; else by the loader of the machine. A program for another machine than this
/// one may meet an older loader.
fn are_packed_relocations_applied() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_ENV", "musl") {
        return true;
    }
    is("CARGO_CFG_TARGET_ENV", "gnu")
        && env::var("HOST") == env::var("TARGET")
        && glibc().is_some_and(|version| version >= PACKED_SINCE)
}

/// The version of this machine: `glibc 2.36`.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
