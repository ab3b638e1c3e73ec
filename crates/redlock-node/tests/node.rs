//! Agent and guardian as real processes, on real cgroups and real masters behind proxies.

mod node {
    #[allow(dead_code, unreachable_pub)]
    #[path = "../../../../tests/common/cgroups.rs"]
    mod cgroups;
    mod ends;
    mod latency;
    mod pods;
    mod refusals;
    mod restarts;
    mod storm;
    mod world;
}
