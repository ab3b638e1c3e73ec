//! Plays the conversations that were recorded on a real control plane on the simulated one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use redlock_world::{
    conversation::{
        AnswerDifference, ConversationFile, ConversationPlayer, PlayMode, SimulatedCluster,
        assert_no_differences, differences,
    },
    runtime,
};

const SEED: u64 = 7;

#[test]
fn simulated_cluster_answers_as_recorded() {
    let mut all = Vec::new();
    for file in ConversationFile::all() {
        all.extend(runtime::run(SEED, played(&file)));
    }
    assert_no_differences(&all);
}

async fn played(file: &ConversationFile) -> Vec<AnswerDifference> {
    let conversation = &file.conversation;
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let cluster = SimulatedCluster::start(start, conversation.controllers);
    let answers = ConversationPlayer::new(&cluster, PlayMode::Compare)
        .play(conversation)
        .await;
    differences(&file.name(), conversation, &answers)
}
