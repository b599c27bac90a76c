//! Connections to ports of a guest, through the address of its pod.
//!
//! The address is the one that the node gave the pod. `status.interfaces` of the guest has addresses too, but the guest's agent may
//! have made them up: a guest must not choose where this process connects to.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::labels;
use ferrovirt_apiserver::http::respond::Answer;
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UdpSocket};

use super::GUEST;
use super::wanted::{Port, Protocol};
use crate::cluster::{Cluster, Kind};
use crate::websocket::{Asked, Farewell};

/// How long a guest may take to accept.
const PATIENCE: Duration = Duration::from_secs(10);

/// The address of the pod that the guest runs in.
pub(super) async fn address(cluster: &dyn Cluster, vmi: &VirtualMachineInstance) -> ApiResult<IpAddr> {
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
    let selector = format!("{}={}", labels::CREATED_BY, vmi.metadata.uid.as_deref().unwrap_or_default());
    let pods = cluster.list(Kind::Pod, namespace, &selector).await?;
    let pod = pods.iter().find(|pod| is_owned(pod, vmi) && pod["spec"]["nodeName"].as_str() == node && is_alive(pod));
    let address = pod.and_then(|pod| pod["status"]["podIP"].as_str()?.parse().ok());
    address.ok_or_else(|| ApiError::conflict(GUEST, name, "its pod has no address yet"))
}

fn is_owned(pod: &Value, vmi: &VirtualMachineInstance) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let uid = vmi.metadata.uid.as_deref();
    owners.into_iter().flatten().any(|owner| owner["controller"] == true && owner["uid"].as_str() == uid)
}

fn is_alive(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Connects the client to the port.
pub(super) async fn connect(client: Asked, address: IpAddr, port: Port, ended: Farewell) -> ApiResult<Answer> {
    let address = SocketAddr::new(address, port.number);
    let failed = |error: io::Error| ApiError::internal(format!("dialing VM: {address}: {error}"));
    match port.protocol {
        Protocol::Tcp => {
            let dialled = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await;
            let stream = dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
            let _ = stream.set_nodelay(true);
            client.join(stream, ended)
        }
        Protocol::Udp => {
            let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(local).await.map_err(failed)?;
            socket.connect(address).await.map_err(failed)?;
            client.join(Datagrams(socket), ended)
        }
    }
}

/// Datagrams as a stream: each write sends one, each read receives one. An empty one would look like the end and is skipped.
struct Datagrams(UdpSocket);

impl AsyncRead for Datagrams {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let before = buffer.filled().len();
            match self.0.poll_recv(context, buffer) {
                Poll::Ready(Ok(())) if buffer.filled().len() == before => {}
                // Nobody listens yet; the guest may start to, as on any network.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                other => return other,
            }
        }
    }
}

impl AsyncWrite for Datagrams {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.0.poll_send(context, bytes) {
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                other => return other,
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
