//! Runs `make bench`: measures the protocol next to a floor, in one run, on five real masters of this machine.
//!
//! The floor does the round trips and nothing else: SET NX PX and EVALSHA to five masters at once, done when three have
//! answered. rslock runs next to both. The rounds of all three alternate, so that noise affects them equally.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that fails must stop"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    unreachable_pub,
    reason = "numbers for people; a program of several files"
)]

#[path = "lease/contestant.rs"]
mod contestant;
#[path = "lease/goals.rs"]
mod goals;
#[path = "lease/idle.rs"]
mod idle;
#[path = "lease/many.rs"]
mod many;
#[path = "lease/script.rs"]
mod script;
#[path = "lease/setup.rs"]
mod setup;
#[path = "lease/single.rs"]
mod single;
#[path = "lease/takeover.rs"]
mod takeover;

fn main() {
    redlock_bench::run(|wanted| async move {
        // On a worker thread, where the tasks of a program run. Other threads would have to wake the main thread.
        let measured = async move {
            let quorum = setup::Quorum::start(5).await;
            let mut goals = goals::Goals::default();
            if wanted("scripts") {
                script::run(&quorum, &mut goals).await;
            }
            if wanted("single") {
                single::run(&quorum, &mut goals).await;
            }
            if wanted("tasks") {
                many::tasks(&quorum, &mut goals).await;
            }
            if wanted("leases") {
                many::leases(&quorum, &mut goals).await;
            }
            if wanted("idle") {
                idle::run(&quorum, &mut goals).await;
            }
            if wanted("takeover") {
                takeover::run(&quorum, &mut goals).await;
            }
            if wanted("hung") {
                single::hung(&quorum, &mut goals).await;
            }
            goals.print();
            quorum.close().await;
        };
        tokio::spawn(measured).await.unwrap();
    });
}
