use axum::Router;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::*;
use crate::targets::{
    StopPermit,
    fake_server::{fake_server, held, target_context},
};

/// Returns the verdict about pods without a label, on a standby or under a lease.
async fn verdict(choice: &Choice, standby: bool) -> Step {
    let (context, _) = target_context(fake_server(Router::new()).await, &[]);
    let target = LabelPods::new(context, &LabelSelector::default());
    let (start, stop) = (held(), StopPermit::new(|_| true));
    if !standby {
        return target.verdict(&[], choice, &Wanted::Ready, Cause::Lease(&start));
    }
    let ordered = target.verdict(&[], choice, &Wanted::NoPod, Cause::Ordered(&stop));
    let unheld = target.verdict(&[], choice, &Wanted::NoPod, Cause::Unheld(&stop));
    assert_eq!(ordered, unheld);
    ordered
}

#[tokio::test]
async fn template_with_the_label_is_reported_on_a_standby_that_counts_as_stopped() {
    let choice = Choice {
        template: Some("helm".into()),
        ..Choice::default()
    };
    let step = verdict(&choice, true).await;
    assert!(step.is_stopped());
    let Step::Trouble(why) = step else {
        panic!("{step:?}");
    };
    assert_eq!(
        (why.state, why.reason),
        (TargetState::Standby, ConditionReason::TargetNotSafe)
    );
    assert!(why.text.contains("helm"), "{}", why.text);
    assert_eq!(verdict(&Choice::default(), true).await, Step::Done);
}

#[tokio::test]
async fn template_with_the_label_is_reported_before_the_lack_of_a_ready_pod() {
    let choice = Choice {
        template: Some("helm".into()),
        ..Choice::default()
    };
    let reason = |step: Step| match step {
        Step::Trouble(why) => why.reason,
        step => panic!("{step:?}"),
    };
    assert_eq!(
        reason(verdict(&choice, false).await),
        ConditionReason::TargetNotSafe
    );
    assert_eq!(
        reason(verdict(&Choice::default(), false).await),
        ConditionReason::NoReadyPod
    );
}
