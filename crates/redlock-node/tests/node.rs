//! Tests agent and guardian as real processes, on real cgroups and real masters behind proxies.

// The lints exempt test functions, but not the functions that the tests share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod node {
    #[allow(dead_code, unreachable_pub)]
    #[path = "../../../../tests/common/cgroups.rs"]
    mod cgroups;
    mod churn;
    mod ends;
    mod failed_freezes;
    mod latency;
    mod orderly_ends;
    mod placements;
    mod pods;
    mod refusals;
    mod releases;
    mod restarts;
    #[allow(dead_code, unreachable_pub)]
    #[path = "../../../../tests/common/sandbox.rs"]
    mod sandbox;
    mod storm;
    mod volumes;
    mod world;
}
