use serde_json::json;

use super::*;

fn kubeconfig(context: &Value, cluster: &Value, user: &Value) -> Kubeconfig {
    serde_json::from_value(json!({
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }))
    .unwrap()
}

fn usual() -> Kubeconfig {
    let server = json!({"server": "https://api.example:6443/k8s/c-1"});
    kubeconfig(
        &json!({"cluster": "c", "user": "u"}),
        &server,
        &json!({"token": "t"}),
    )
}

#[test]
fn context_names_server_user_and_namespace() {
    let config = configure(usual(), None).unwrap();
    assert_eq!(config.cluster_url.to_string(), "https://api.example:6443/k8s/c-1");
    assert_eq!(config.default_namespace, "default");
    assert!(config.auth_info.token.is_some() && config.root_cert.is_none());
    let away = configure(usual(), Some("there")).unwrap_err();
    assert!(away.to_string().contains("there"), "{away}");
    let mut none = usual();
    none.current_context = Some(String::new());
    assert!(matches!(
        configure(none, None),
        Err(ApiServerError::Kubeconfig(KubeconfigError::CurrentContextNotSet))
    ));
}

#[test]
fn empty_texts_of_a_kubeconfig_count_as_absent() {
    let empty = kubeconfig(
        &json!({"cluster": "c", "user": "u", "namespace": ""}),
        &json!({"server": "https://a", "certificate-authority-data": "", "certificate-authority": "", "proxy-url": "",
               "tls-server-name": ""}),
        &json!({"client-certificate-data": "", "client-key-data": "", "token": "", "tokenFile": ""}),
    );
    let config = configure(empty, None).unwrap();
    assert_eq!(config.default_namespace, "default");
    assert!(config.root_cert.is_none() && config.tls_server_name.is_none());
    let user = &config.auth_info;
    assert!(user.token.is_none() && user.token_file.is_none() && user.client_key_data.is_none());
}

#[test]
fn invalid_entries_are_named() {
    let of = |cluster: &Value| configure(kubeconfig(&json!({"cluster": "c"}), cluster, &json!({})), None);
    for (cluster, text) in [
        (json!({}), "cluster url is missing"),
        (
            json!({"server": "https://a", "certificate-authority-data": "eA=="}),
            "cluster \"c\": the data of its",
        ),
        (
            json!({"server": "https://a", "certificate-authority-data": "*"}),
            "decode base64",
        ),
        (
            json!({"server": "https://a", "certificate-authority": "/nonexistent"}),
            "/nonexistent",
        ),
        (
            json!({"server": "https://a", "proxy-url": "ftp://p"}),
            "proxy-url of the kubeconfig: \"ftp://p\"",
        ),
    ] {
        let error = of(&cluster).unwrap_err();
        assert!(chain(&error).contains(text), "{}", chain(&error));
    }
}

#[test]
fn proxy_of_the_kubeconfig_is_used() {
    let mut proxied = usual();
    proxied.clusters[0].cluster.as_mut().unwrap().proxy_url = Some("socks5://p:1080".into());
    let config = configure(proxied, None).unwrap();
    assert_eq!(config.proxy_url.unwrap().to_string(), "socks5://p:1080/");
}

#[test]
fn kubeconfig_that_cannot_be_used_is_not_a_missing_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let missing = |path: PathBuf| is_missing(&Kubeconfig::read_from(path).unwrap_err());
    assert!(missing(folder.path().join("missing")));
    assert!(missing(file("no-folder", "").join("config")));
    assert!(is_missing(&KubeconfigError::FindPath));
    assert!(!missing(file("broken", "{")));
    assert!(!missing(folder.path().to_path_buf()), "a folder");
}

#[test]
fn only_one_file_of_a_list_has_to_exist() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    std::fs::write(&file, serde_json::to_string(&usual()).unwrap()).unwrap();
    let other = folder.path().join("other");
    std::fs::write(&other, r#"{"current-context": "", "contexts": []}"#).unwrap();
    let missing = folder.path().join("missing");
    let read = |files: &[&PathBuf]| merged(&files.iter().map(|file| (*file).clone()).collect::<Vec<_>>());
    assert_eq!(
        read(&[&missing, &other, &file])
            .unwrap()
            .current_context
            .as_deref(),
        Some("here")
    );
    let error = read(&[&missing]).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
    assert_eq!(files("::/a: ".as_ref()), [PathBuf::from("/a")]);
}
