use super::*;
use crate::{network::Latency, runtime::run};

fn master<T>(test: impl AsyncFnOnce(Network, Master) -> T) -> T {
    run(1, async {
        let network = Network::new(1, Latency::milliseconds(0, 2));
        let master = Masters::start(&network, &["m0"], 1).get(0).clone();
        test(network, master).await
    })
}

fn text(text: &str) -> Reply {
    Reply::text(text)
}

#[test]
fn keys_expire_by_the_clock_of_the_master() {
    master(async |_, master| {
        master.execute(&["SET", "k", "v", "PX", "100"]);
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert_eq!(master.execute(&["PTTL", "k"]), Reply::Integer(40));
        assert_eq!(master.text("k").unwrap().left, Some(40));
        master.step_clock(-50_000);
        assert_eq!(master.execute(&["PTTL", "k"]), Reply::Integer(90));
        assert_eq!(master.execute(&["SET", "k", "w", "NX", "PX", "9"]), Reply::Nil);
        master.set_drift(500_000);
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert_eq!(master.execute(&["PTTL", "k"]), Reply::Integer(0));
        master.step_clock(1_000);
        assert_eq!(master.execute(&["PTTL", "k"]), Reply::Integer(-2));
        assert_eq!(master.keys(), [""; 0]);
    });
}

#[test]
fn a_restart_changes_the_run_and_keeps_the_data() {
    master(async |network, master| {
        let run_id = |master: &Master| {
            let Reply::Bulk(info) = master.execute(&["INFO", "server"]) else {
                panic!()
            };
            let info = String::from_utf8(info).unwrap();
            info.split_once("run_id:").unwrap().1[..40].to_owned()
        };
        let before = run_id(&master);
        master.execute(&["SET", "k", "v"]);
        master.restart().await;
        assert_ne!(run_id(&master), before);
        assert_eq!(master.execute(&["GET", "k"]), text("v"));
        master.restart_empty().await;
        assert_eq!(master.execute(&["GET", "k"]), Reply::Nil);
        let party = network.party("eu/r1");
        assert!(party.connect("m0", PORT).await.is_ok());
        master.kill();
        tokio::task::yield_now().await;
        assert!(party.connect("m0", PORT).await.is_err());
        assert!(!master.is_running());
    });
}

#[test]
fn a_script_that_has_written_may_go_on_to_write() {
    master(async |_, master| {
        let refusal = |name: &str| format!("{name} ");
        master.execute(&["SET", "k", "v", "PX", "500"]);
        let set = "return redis.pcall('SET', 'a', 'b')";
        for (reason, code) in [
            (WriteRefusal::OutOfMemory, "OOM"),
            (WriteRefusal::Misconfigured, "MISCONF"),
            (WriteRefusal::NoReplicas, "NOREPLICAS"),
            (WriteRefusal::ReadOnly, "READONLY"),
        ] {
            master.refuse_writes(Some(reason));
            let Reply::Error(error) = master.execute(&["EVAL", set, "0"]) else {
                panic!()
            };
            assert!(error.starts_with(&refusal(code)), "{error}");
            let Reply::Error(error) = master.execute(&["EVAL", "redis.call('SET', 'a', 'b')", "0"]) else {
                panic!()
            };
            assert!(error.starts_with(&refusal(code)), "{error}");
        }
        master.refuse_writes(Some(WriteRefusal::OutOfMemory));
        let both = "redis.call('PEXPIRE', 'k', 900) return redis.call('SET', 'a', 'b')";
        assert_eq!(master.execute(&["EVAL", both, "0"]), Reply::ok());
    });
}

#[test]
fn values_of_lua_are_converted_as_by_redis() {
    master(async |_, master| {
        let eval = |source: &str| master.execute(&["EVAL", source, "1", "key", "argument"]);
        assert_eq!(
            eval("return {KEYS[1], ARGV[1], 3.9, true, false, nil, 7}"),
            Reply::Array(vec![
                text("key"),
                text("argument"),
                Reply::Integer(3),
                Reply::Integer(1),
                Reply::Nil,
            ])
        );
        assert_eq!(
            eval("return redis.status_reply('FINE')"),
            Reply::Status("FINE".into())
        );
        assert_eq!(
            eval("return redis.error_reply('BAD it is')"),
            Reply::Error("BAD it is".into())
        );
        assert_eq!(eval("return redis.call('SET', 'n', 2^53 - 1)"), Reply::ok());
        assert_eq!(eval("return redis.call('GET', 'n')"), text("9007199254740991"));
        assert!(
            matches!(eval("return redis.call('NONE')"), Reply::Error(error) if error.starts_with("ERR unknown"))
        );
        assert!(
            matches!(eval("this is not lua"), Reply::Error(error) if error.starts_with("ERR Error compiling"))
        );
        let unknown = master.execute(&["EVALSHA", "00", "0"]);
        assert!(matches!(unknown, Reply::Error(error) if error.starts_with("NOSCRIPT")));
    });
}
