//! Registers the driver with the kubelet (`pluginregistration.Registration`).

use std::{path::PathBuf, sync::Arc};

use tonic::body::Body;
use tracing::{error, info};

use crate::{
    DRIVER_NAME,
    messages::{Empty, PluginInfo, RegistrationStatus},
    rpc::{Answer, Methods, unary, unimplemented},
};

/// The supported version of CSI. The kubelet accepts versions of CSI 1.
const CSI_VERSION: &str = "1.0.0";

#[derive(Debug)]
pub(crate) struct Registration {
    /// The socket of the driver, as the kubelet sees it.
    pub(crate) endpoint: PathBuf,
}

impl Methods for Registration {
    async fn call(self: Arc<Self>, request: http::Request<Body>) -> Answer {
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/pluginregistration.Registration/GetInfo" => {
                unary(request, |_: Empty| async move { Ok(self.info()) }).await
            }
            "/pluginregistration.Registration/NotifyRegistrationStatus" => {
                unary(request, |status| async move {
                    report(&status);
                    Ok(Empty {})
                })
                .await
            }
            path => unimplemented(path),
        }
    }
}

impl Registration {
    fn info(&self) -> PluginInfo {
        PluginInfo {
            kind: "CSIPlugin".to_owned(),
            name: DRIVER_NAME.to_owned(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec![CSI_VERSION.to_owned()],
        }
    }
}

/// Logs the result. The kubelet retries a failed registration, with growing pauses.
fn report(status: &RegistrationStatus) {
    if status.plugin_registered {
        info!(driver = DRIVER_NAME, "the kubelet registered the driver");
    } else {
        error!(
            driver = DRIVER_NAME,
            reason = status.error,
            "the kubelet did not register the driver"
        );
    }
}
