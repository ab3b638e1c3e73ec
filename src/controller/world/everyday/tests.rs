//! Runs each scenario in several worlds, and proves that the scenarios find planted mistakes.

use super::{Scenario, number};
use crate::controller::{
    planted::{WorldMistake, plant},
    world::story::print_logs,
};

/// Runs a scenario in worlds of different seeds. Returns the first seed that fails, and why.
fn failure(scenario: Scenario, worlds: u64) -> Option<String> {
    let seeds = number("REDLOCK_SEED").map_or(0..worlds, |seed| seed..seed + 1);
    seeds
        .filter_map(|seed| {
            let end = redlock_world::runtime::run(seed, scenario.run(seed));
            end.err()
                .map(|broken| format!("{scenario:?} REDLOCK_SEED={seed}: {broken}"))
        })
        .next()
}

fn holds(scenario: Scenario) {
    if number("REDLOCK_SEED").is_some() {
        print_logs();
    }
    let failure = failure(scenario, number("REDLOCK_WORLDS").unwrap_or(4));
    assert!(failure.is_none(), "{}", failure.unwrap_or_default());
}

#[test]
fn deleted_lock_leaves_no_work_running_in_one_cluster() {
    holds(Scenario::Deletion { clusters: 1 });
}

#[test]
fn deleted_lock_passes_the_work_to_the_other_cluster() {
    holds(Scenario::Deletion { clusters: 2 });
}

#[test]
fn lock_that_was_created_again_is_deleted_with_its_work() {
    holds(Scenario::DeletionAfterRecreation);
}

#[test]
fn paused_lock_that_is_deleted_keeps_its_lease_until_it_is_resumed() {
    holds(Scenario::PausedDeletion);
}

#[test]
fn lock_moves_to_another_quorum_with_one_writer() {
    holds(Scenario::AnotherQuorum);
}

#[test]
fn removed_target_is_left_alone_once_it_was_stopped() {
    holds(Scenario::RemovedTarget);
}

#[test]
fn target_moves_to_another_lock() {
    holds(Scenario::MovedTarget);
}

#[test]
fn cluster_that_steps_down_passes_the_work_on() {
    holds(Scenario::StepDown);
}

#[test]
fn lock_is_guarded_and_not_active_while_its_start_is_postponed() {
    holds(Scenario::TakeoverDelay);
}

#[test]
fn standby_without_masters_and_siblings_leaves_the_work_to_the_coordinator() {
    holds(Scenario::BlindStandby);
}

#[test]
fn holder_that_is_cut_off_from_the_api_server_passes_its_locks_on() {
    holds(Scenario::CutOffHolder);
}

#[test]
fn copy_of_a_cluster_stops_its_work_and_leaves_the_lock_to_the_original() {
    holds(Scenario::CopiedCluster);
}

#[test]
fn lock_whose_start_is_denied_passes_to_a_cluster_that_can_start_it() {
    holds(Scenario::DeniedStart);
}

#[test]
fn unready_work_stays_where_no_other_cluster_takes_part() {
    holds(Scenario::UnreadyAlone);
}

#[test]
fn work_that_is_unready_everywhere_is_moved_seldom() {
    holds(Scenario::UnreadyEverywhere);
}

#[test]
fn work_is_not_stopped_for_a_cluster_that_is_stepped_down() {
    holds(Scenario::HandOverToSteppedDown);
}

#[test]
fn missing_targets_of_one_namespace_delay_no_start_in_another() {
    holds(Scenario::BadNeighbours);
}

#[test]
fn takeover_does_not_wait_for_the_clock_of_one_master() {
    holds(Scenario::SteppedClock);
}

#[test]
fn refused_writes_of_the_masters_are_reported_until_they_end() {
    holds(Scenario::RefusedWrites);
}

#[test]
fn deleted_lock_stays_with_its_work_until_the_stop_is_allowed() {
    holds(Scenario::DeniedDeletion);
}

#[test]
fn lock_that_names_a_missing_quorum_stays_in_force() {
    holds(Scenario::MissingQuorum);
}

#[test]
fn removed_target_whose_stop_is_denied_is_reported() {
    holds(Scenario::DeniedRemoval);
}

#[test]
fn lock_that_is_given_up_beside_running_work_is_not_reported_as_released() {
    holds(Scenario::DeniedStepDown);
}

#[test]
fn stop_that_no_controller_carries_out_is_reported() {
    holds(Scenario::UnconfirmedStop);
}

#[test]
fn lock_whose_targets_cannot_be_switched_is_not_held() {
    holds(Scenario::Unswitchable);
}

#[test]
fn holder_declares_the_time_of_a_pod_template_that_comes_later() {
    holds(Scenario::LateTarget);
}

#[test]
fn status_follows_the_lock_although_its_reporter_is_lost() {
    holds(Scenario::LostReporter);
}

#[test]
fn deleted_lock_waits_for_the_pods_of_a_target_that_was_deleted_without_them() {
    holds(Scenario::OrphanedPods);
}

#[test]
fn last_replica_stops_the_work_of_a_holder_that_is_lost() {
    holds(Scenario::LastReplica);
}

#[test]
fn work_that_keeps_running_without_masters_survives_a_restart_of_the_operator() {
    holds(Scenario::ContinuingWork);
}

#[test]
fn last_replica_shows_that_it_stops_the_work() {
    holds(Scenario::ShownLastStop);
}

#[test]
fn lock_that_is_deleted_while_its_holder_is_cut_off_goes_with_its_work() {
    holds(Scenario::DeletedWhileCutOff);
}

#[test]
fn lock_stays_until_the_pods_of_a_removed_target_have_ended() {
    holds(Scenario::DeletedAfterRemoval);
}

#[test]
fn replicas_that_see_different_masters_do_not_replace_the_status_of_the_quorum() {
    holds(Scenario::QuorumReportedOnce);
}

#[test]
fn status_of_a_restored_backup_is_corrected_without_a_majority() {
    holds(Scenario::RestoredStatus);
}

/// Each mistake, and the scenario that finds it.
const MISTAKES: [(WorldMistake, Scenario); 28] = [
    (
        WorldMistake::DepartsUnrecorded,
        Scenario::Deletion { clusters: 1 },
    ),
    (WorldMistake::DepartsUnrecorded, Scenario::AnotherQuorum),
    (WorldMistake::ComparesTokensOfQuorums, Scenario::AnotherQuorum),
    (WorldMistake::HidesLockInForce, Scenario::MissingQuorum),
    (WorldMistake::RemembersRemoved, Scenario::RemovedTarget),
    (WorldMistake::GuardsLate, Scenario::TakeoverDelay),
    (WorldMistake::LeavesPaused, Scenario::PausedDeletion),
    (WorldMistake::StopsUnelected, Scenario::BlindStandby),
    (WorldMistake::UnguardsUnconfirmed, Scenario::DeletedAfterRemoval),
    (WorldMistake::KeepsFormerClaims, Scenario::MovedTarget),
    (WorldMistake::WaitsForContender, Scenario::DeletedWhileCutOff),
    (WorldMistake::KeepsLocksCutOff, Scenario::CutOffHolder),
    (WorldMistake::TrustsCopies, Scenario::CopiedCluster),
    (WorldMistake::QueuesByArrival, Scenario::BadNeighbours),
    (WorldMistake::PassesToAnyCluster, Scenario::UnreadyAlone),
    (WorldMistake::PassesToAnyCluster, Scenario::UnreadyEverywhere),
    (WorldMistake::PassesToAnyCluster, Scenario::HandOverToSteppedDown),
    (WorldMistake::CountsStartedTargets, Scenario::DeniedStart),
    (WorldMistake::HoldsUnswitchable, Scenario::Unswitchable),
    (WorldMistake::DeclaresAssumedTime, Scenario::LateTarget),
    (WorldMistake::ReportsLate, Scenario::LostReporter),
    (WorldMistake::ReportsEverywhere, Scenario::QuorumReportedOnce),
    (WorldMistake::TrustsRestoredStatus, Scenario::RestoredStatus),
    (WorldMistake::ForgetsOrphans, Scenario::OrphanedPods),
    (WorldMistake::LeavesTargetsOfLostHolder, Scenario::LastReplica),
    (WorldMistake::StopsSilently, Scenario::ShownLastStop),
    (WorldMistake::StopsContinuingWork, Scenario::ContinuingWork),
    (WorldMistake::StopsUnconfirmed, Scenario::ContinuingWork),
];

/// Returns each mistake once.
pub(in crate::controller::world) fn mistakes() -> Vec<WorldMistake> {
    let mut mistakes: Vec<WorldMistake> = MISTAKES.into_iter().map(|(mistake, _)| mistake).collect();
    // Those of one mistake follow each other.
    mistakes.dedup();
    mistakes
}

#[test]
fn every_planted_mistake_is_found() {
    let missed: Vec<_> = MISTAKES
        .into_iter()
        .filter(|(mistake, scenario)| {
            plant(Some(*mistake));
            let found = failure(*scenario, 200);
            plant(None);
            println!("{mistake:?}: {found:?}");
            found.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
