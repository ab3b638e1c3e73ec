//! Sets the linker's layout of the program, which determines how much memory a `redlock run` keeps (see
//! docs/benchmarks.md).

use std::{env, process::Command};

/// Keeps the functions that `redlock run` executes next to each other. `scripts/order-run` writes the file.
const FUNCTIONS: &str = "src/run/functions.ld";
/// The first version of glibc that applies packed relocations.
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

/// Passes an argument that is valid for a linker and for a C compiler that calls one.
fn link(argument: &str) {
    println!("cargo::rustc-link-arg-bin=redlock={argument}");
}

/// Reports whether packed relocations are applied: with musl by the program, which contains musl; otherwise
/// by the loader of this machine. A program for another machine may run with an older loader.
fn are_packed_relocations_applied() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_ENV", "musl") {
        return true;
    }
    is("CARGO_CFG_TARGET_ENV", "gnu")
        && env::var("HOST") == env::var("TARGET")
        && glibc().is_some_and(|version| version >= PACKED_SINCE)
}

/// Returns the version of glibc on this machine, from `glibc 2.36`.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
