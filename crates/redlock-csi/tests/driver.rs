//! Tests the driver over its real sockets, as the kubelet calls it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "driver/client.rs"]
mod client;
#[path = "driver/gate.rs"]
mod gate;

use std::{fs, os::unix::fs::PermissionsExt};

use redlock_csi::messages::{
    Empty, GetPluginInfoResponse, NodeGetInfoResponse, PluginInfo, ProbeResponse, RegistrationStatus,
};
use tonic::Code;

use client::Kubelet;
use gate::{Answer, Gate, Seen};

const UID: &str = "8f0c2b7e-4d3a-4f5e-9c1d-0123456789ab";
const OTHER: &str = "11111111-4d3a-4f5e-9c1d-0123456789ab";

#[tokio::test]
async fn the_kubelet_registers_the_driver_by_its_socket() {
    let kubelet = Kubelet::start(Gate::default()).await;
    let info: PluginInfo = kubelet.register("GetInfo", Empty {}).await.unwrap();
    assert_eq!(info.kind, "CSIPlugin");
    assert_eq!(info.name, "fencing.redlock.dev");
    assert_eq!(info.supported_versions, ["1.0.0"]);
    let socket = kubelet.directory().join("plugins/fencing.redlock.dev/csi.sock");
    assert_eq!(info.endpoint, socket.display().to_string());
    for (plugin_registered, error) in [(true, ""), (false, "the CSINode object could not be updated")] {
        let status = RegistrationStatus {
            plugin_registered,
            error: error.into(),
        };
        let _: Empty = kubelet
            .register("NotifyRegistrationStatus", status)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn the_driver_names_itself_its_node_and_whether_it_is_ready() {
    let gate = Gate::default();
    let kubelet = Kubelet::start(gate.clone()).await;
    let info: GetPluginInfoResponse = kubelet.identity("GetPluginInfo", Empty {}).await.unwrap();
    assert_eq!(info.name, "fencing.redlock.dev");
    assert_eq!(info.vendor_version, env!("CARGO_PKG_VERSION"));
    let node: NodeGetInfoResponse = kubelet.node("NodeGetInfo", Empty {}).await.unwrap();
    assert_eq!(node.node_id, "node-1");
    for ready in [true, false] {
        gate.set_ready(ready);
        let probe: ProbeResponse = kubelet.identity("Probe", Empty {}).await.unwrap();
        assert_eq!(probe.ready, Some(ready));
    }
}

#[tokio::test]
async fn a_method_that_is_not_part_of_the_driver_is_unimplemented() {
    let kubelet = Kubelet::start(Gate::default()).await;
    let refused = kubelet
        .node::<_, Empty>("NodeStageVolume", Empty {})
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("/csi.v1.Node/NodeStageVolume"));
}

#[tokio::test]
async fn a_volume_is_a_directory_from_publish_to_unpublish() {
    let gate = Gate::default();
    let kubelet = Kubelet::start(gate.clone()).await;
    let volume = kubelet.volume(UID, "redlock");
    kubelet.publish(&volume).await.unwrap();
    let mode = fs::metadata(&volume.target).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    fs::write(volume.target.join("token"), "7").unwrap();
    // A restarted kubelet publishes again.
    kubelet.publish(&volume).await.unwrap();
    assert!(volume.target.join("token").exists());
    for _ in 0..2 {
        kubelet.unpublish(&volume).await.unwrap();
        assert!(!volume.target.exists());
    }
    let seen = gate.seen();
    assert_eq!(seen[0], Seen::published("shop/report-0", UID, "report"));
    assert_eq!(seen[2..], [Seen::unpublished(UID), Seen::unpublished(UID)]);
}

#[tokio::test]
async fn a_refused_volume_leaves_no_directory_and_names_the_reason() {
    let gate = Gate::default();
    let kubelet = Kubelet::start(gate.clone()).await;
    let volume = kubelet.volume(UID, "redlock");
    for (answer, code) in [
        (Answer::NotYet, Code::FailedPrecondition),
        (Answer::Invalid, Code::InvalidArgument),
        (Answer::Unavailable, Code::Unavailable),
    ] {
        gate.answer(answer);
        let refused = kubelet.publish(&volume).await.unwrap_err();
        assert_eq!(refused.code(), code);
        assert_eq!(refused.message(), "cluster us-1 holds lock report");
        assert!(!volume.target.exists());
    }
    // The directory of a pod that may run remains.
    gate.answer(Answer::Ok);
    kubelet.publish(&volume).await.unwrap();
    gate.answer(Answer::Unavailable);
    kubelet.publish(&volume).await.unwrap_err();
    assert!(volume.target.exists());
}

#[tokio::test]
async fn an_invalid_call_reaches_no_decision() {
    let gate = Gate::default();
    let kubelet = Kubelet::start(gate.clone()).await;
    let mut volume = kubelet.volume(UID, "redlock");
    volume.attributes.insert("lokc".into(), "report".into());
    let refused = kubelet.publish(&volume).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("lokc"), "{refused}");
    volume.target = "/etc".into();
    let refused = kubelet.unpublish(&volume).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(gate.seen().is_empty());
}

#[tokio::test]
async fn a_second_volume_of_the_driver_in_a_pod_is_refused() {
    let kubelet = Kubelet::start(Gate::default()).await;
    let first = kubelet.volume(UID, "redlock");
    kubelet.publish(&first).await.unwrap();
    let second = kubelet.volume(UID, "more");
    let refused = kubelet.publish(&second).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused.message().contains("two volumes") && refused.message().contains("more and redlock"),
        "{refused}"
    );
    assert!(!second.target.exists());
    kubelet.publish(&kubelet.volume(OTHER, "redlock")).await.unwrap();
    // A volume of another driver is not a second volume.
    let pod = kubelet.volume("22222222-4d3a-4f5e-9c1d-0123456789ab", "redlock");
    let secrets = pod.target.parent().unwrap().with_file_name("secrets");
    fs::create_dir(&secrets).unwrap();
    fs::write(
        secrets.join("vol_data.json"),
        r#"{"driverName":"secrets.example"}"#,
    )
    .unwrap();
    kubelet.publish(&pod).await.unwrap();
}

#[tokio::test]
async fn a_call_that_the_kubelet_gives_up_continues_and_counts() {
    let gate = Gate::default();
    let kubelet = Kubelet::start(gate.clone()).await;
    let volume = kubelet.volume(UID, "redlock");
    gate.answer(Answer::Hold);
    // The kubelet gives up the call once the gate holds it.
    tokio::select! {
        _ = kubelet.publish(&volume) => panic!("the gate is closed"),
        () = gate.wait_for(|gate| gate.held() == 1) => {}
    }
    assert!(!volume.target.exists(), "the pod waits");
    let refused = kubelet.publish(&volume).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "one call a volume: {refused}");
    assert_eq!(gate.held(), 1, "the first call continues");
    gate.answer(Answer::Ok);
    gate.wait_for(|gate| gate.held() == 0).await;
    kubelet.until_published(&volume).await;
    assert!(volume.target.exists());
}

#[tokio::test]
async fn a_pod_that_is_deleted_while_it_waits_leaves_nothing() {
    let gate = Gate::default();
    let kubelet = Kubelet::start(gate.clone()).await;
    let volume = kubelet.volume(UID, "redlock");
    gate.answer(Answer::Hold);
    let publishing = kubelet.publish(&volume);
    tokio::pin!(publishing);
    tokio::select! {
        _ = &mut publishing => panic!("the gate is closed"),
        () = gate.wait_for(|gate| gate.held() == 1) => {}
    }
    let (published, unpublished) = tokio::join!(publishing, kubelet.unpublish(&volume));
    assert_eq!(published.unwrap_err().code(), Code::Aborted);
    unpublished.unwrap();
    assert!(!volume.target.exists());
    assert_eq!(gate.held(), 0, "the call was dropped");
    let last = gate.seen().pop();
    assert_eq!(
        last,
        Some(Seen::unpublished(UID)),
        "after the call that it replaces"
    );
}

#[tokio::test]
async fn a_shutdown_ends_waiting_calls_and_removes_the_sockets() {
    let gate = Gate::default();
    let mut kubelet = Kubelet::start(gate.clone()).await;
    let volume = kubelet.volume(UID, "redlock");
    kubelet.publish(&volume).await.unwrap();
    gate.answer(Answer::Hold);
    let publishing = kubelet.publish_detached(&volume);
    gate.wait_for(|gate| gate.held() == 1).await;
    kubelet.stop().await;
    assert_eq!(publishing.await.unwrap().unwrap_err().code(), Code::Unavailable);
    assert!(volume.target.exists(), "the pod may run");
    for directory in ["plugins/fencing.redlock.dev", "plugins_registry"] {
        let rest = fs::read_dir(kubelet.directory().join(directory)).unwrap();
        assert_eq!(rest.count(), 0, "{directory}");
    }
    assert!(!gate.seen().contains(&Seen::unpublished(UID)));
}

#[tokio::test]
async fn the_next_process_takes_over_the_sockets_of_the_present_one() {
    let mut kubelet = Kubelet::start(Gate::default()).await;
    let gate = Gate::default();
    gate.set_ready(false);
    let mut next = kubelet.restart_beside(gate);
    next.until_ready_is(false).await;
    kubelet.stop().await;
    let _: PluginInfo = next.register("GetInfo", Empty {}).await.unwrap();
    next.publish(&next.volume(UID, "redlock")).await.unwrap();
    next.stop().await;
}
