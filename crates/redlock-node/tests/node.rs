//! Agent and guardian as real processes, on real cgroups and real masters behind proxies.

// The permission of the lints for tests covers test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod node {
    #[allow(dead_code, unreachable_pub)]
    #[path = "../../../../tests/common/cgroups.rs"]
    mod cgroups;
    mod ends;
    mod latency;
    mod pods;
    mod refusals;
    mod releases;
    mod restarts;
    #[allow(dead_code, unreachable_pub)]
    #[path = "../../../../tests/common/sandbox.rs"]
    mod sandbox;
    mod storm;
    mod world;
}
