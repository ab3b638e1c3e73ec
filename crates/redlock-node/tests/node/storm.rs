//! Tests a pod with a thousand threads that forks without a pause.

use super::{pods::no_code_after, world::World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_threads_and_forks_are_frozen_on_time() {
    let Some(mut world) = World::guarded("a thousand threads").await else {
        return;
    };
    let _holder = world.holder("here").await;
    let mut pod = world.run_pod().await;
    pod.start_program(&["storm".as_ref(), world.path("storm.log").as_os_str()]);
    redlock_testkit::eventually(super::world::BOUND, "the storm", async || {
        let text = std::fs::read_to_string(world.path("storm.log")).unwrap_or_default();
        if text == "1000" { Ok(()) } else { Err(text) }
    })
    .await;
    world.cut();
    pod.frozen().await;
    no_code_after(pod.last(), pod.valid_until());
    world.heal();
    pod.writes().await;
}
