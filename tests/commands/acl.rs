//! Tests that the ACL line of docs/redis-acl.md suffices for the commands, and that `doctor` names a missing rule.

use redlock::inspect::{Session, break_lock, doctor, status};

use redlock_testkit::acl::{PASSWORD, as_user, line, servers};
use redlock_testkit::admin;
use redlock_testkit::masters::{LONGEST_LEASE, lock_name, open};

fn granted(line: &str) -> Vec<&str> {
    line.split(' ').filter(|word| word.starts_with('+')).collect()
}

#[tokio::test]
async fn the_documented_user_can_use_every_command() {
    let servers = servers(vec![line()]);
    let config = as_user(&servers, "redlock");
    let opened = open(&config);
    opened.seal(&servers).await;
    drop(opened);
    let session = Session::open(config, None).await.unwrap();
    let status = status::gather(&session, &[], true).await;
    assert_eq!((status.voting, status.complete), (3, true), "{}", status.text());
    let diagnosis = doctor::examine(&session, LONGEST_LEASE).await.unwrap();
    assert!(diagnosis.healthy, "{}", diagnosis.text(doctor::Detail::Checks));
    let plan = break_lock::Plan::make(&session, &lock_name("e/f")).await;
    assert!(plan.carry_out(&session, "test").await.unwrap().majority);
    session.close().await;
    for server in servers.iter() {
        let left: Vec<String> = admin(server, &["KEYS", "redlock:doctor:*"]).await;
        assert_eq!(left, [""; 0], "what doctor leaves behind");
    }
}

#[tokio::test]
async fn each_command_of_the_line_is_needed_and_doctor_names_it() {
    let line = line();
    let without = |word: &str| {
        let name = format!("without-{}", &word[1..]);
        let words: Vec<&str> = line.split(' ').filter(|other| *other != word).collect();
        words.join(" ").replacen("redlock", &name, 1)
    };
    let servers = servers(granted(&line).into_iter().map(without).collect());
    for word in granted(&line) {
        let command = &word[1..];
        for server in servers.iter() {
            let _: String = admin(server, &["SCRIPT", "FLUSH"]).await;
        }
        let config = as_user(&servers, &format!("without-{command}"));
        let session = Session::open(config, None).await.unwrap();
        let diagnosis = doctor::examine(&session, LONGEST_LEASE).await.unwrap();
        session.close().await;
        let text = diagnosis.text(doctor::Detail::Summary).to_lowercase();
        assert!(text.contains("noperm"), "{command} is not needed:\n{text}");
        assert!(text.contains(command), "{command} is not named:\n{text}");
        assert!(text.contains("docs/redis-acl.md"), "{text}");
        assert!(!text.contains(PASSWORD), "{text}");
    }
}
