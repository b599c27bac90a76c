//! The sockets: the only part that touches the kernel.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ferrovirt_launcher_rpc::network::DhcpServer;
use rustix::net::netdevice::name_to_index;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use crate::{v4, v6};

/// No client sends more; the rest of a longer datagram is cut off by the kernel.
const LARGEST_DATAGRAM: usize = 2048;

/// Why a DHCP server does not run.
#[derive(Debug, thiserror::Error)]
pub enum DhcpError {
    /// A socket could not be had.
    #[error(
        "no DHCP server on {device}, UDP port {port}: is net.ipv4.ip_unprivileged_port_start 0 in the pod, and does the device exist?"
    )]
    Listen {
        /// The bridge.
        device: String,
        /// The port.
        port: u16,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A socket broke, for example because its device went away.
    #[error("the DHCP server on {device} can hear no more")]
    Receive {
        /// The bridge.
        device: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Answers the guest until something breaks. Does nothing, for ever, where the server has no lease to give.
pub async fn serve(server: DhcpServer) -> Result<Infallible, DhcpError> {
    let server = &server;
    let v4 = async {
        match server.v4 {
            Some(_) => serve_v4(server).await,
            None => std::future::pending().await,
        }
    };
    let v6 = async {
        match server.v6 {
            Some(_) => serve_v6(server).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        result = v4 => result,
        result = v6 => result,
    }
}

async fn serve_v4(server: &DhcpServer) -> Result<Infallible, DhcpError> {
    let socket = listen_v4(&server.device).map_err(listen_error(server, v4::SERVER_PORT))?;
    answer_all(server, &socket, |datagram, _| {
        let reply = v4::answer(server, datagram)?;
        Some((SocketAddr::V4(reply.to), reply.payload))
    })
    .await
}

async fn serve_v6(server: &DhcpServer) -> Result<Infallible, DhcpError> {
    let socket = listen_v6(&server.device).map_err(listen_error(server, v6::SERVER_PORT))?;
    answer_all(server, &socket, |datagram, from| Some((from, v6::answer(server, datagram)?))).await
}

/// The loop of both servers. An answer that cannot be sent is the client's to ask for again.
async fn answer_all(
    server: &DhcpServer,
    socket: &UdpSocket,
    answer: impl Fn(&[u8], SocketAddr) -> Option<(SocketAddr, Vec<u8>)>,
) -> Result<Infallible, DhcpError> {
    let mut buffer = vec![0; LARGEST_DATAGRAM];
    loop {
        let (length, from) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            // The kernel says so once when the bridge goes down; it may come up again.
            Err(error) if error.kind() == io::ErrorKind::NetworkDown => continue,
            Err(source) => return Err(DhcpError::Receive { device: server.device.clone(), source }),
        };
        let Some((to, reply)) = answer(&buffer[..length], from) else { continue };
        match socket.send_to(&reply, to).await {
            Ok(_) => tracing::debug!(device = server.device, %to, "DHCP answer"),
            Err(error) => tracing::warn!(device = server.device, %to, %error, "a DHCP answer was not sent"),
        }
    }
}

fn listen_v4(device: &str) -> io::Result<UdpSocket> {
    let socket = bound_to(device, Domain::IPV4)?;
    socket.set_broadcast(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, v4::SERVER_PORT)).into())?;
    UdpSocket::from_std(socket.into())
}

fn listen_v6(device: &str) -> io::Result<UdpSocket> {
    let socket = bound_to(device, Domain::IPV6)?;
    socket.set_only_v6(true)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, v6::SERVER_PORT)).into())?;
    let index = name_to_index(&socket, device)?;
    socket.join_multicast_v6(&v6::ALL_SERVERS, index)?;
    UdpSocket::from_std(socket.into())
}

/// A socket that hears and speaks on one device only. It is bound to it before it has a port, so that there may be a server for each bridge.
fn bound_to(device: &str, domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
    socket.bind_device(Some(device.as_bytes()))?;
    Ok(socket)
}

fn listen_error(server: &DhcpServer, port: u16) -> impl FnOnce(io::Error) -> DhcpError {
    let device = server.device.clone();
    move |source| DhcpError::Listen { device, port, source }
}

#[cfg(test)]
mod tests {
    use ferrovirt_launcher_rpc::network::DhcpV6;

    use super::*;

    #[tokio::test]
    async fn a_missing_device_is_named() {
        let v6 = Some(DhcpV6 { address: Ipv6Addr::LOCALHOST, dns: Vec::new() });
        let server = DhcpServer { device: "k6t-nowhere".to_owned(), v6, ..DhcpServer::default() };
        let error = serve(server).await.unwrap_err();
        assert!(matches!(&error, DhcpError::Listen { device, port: 547, .. } if device == "k6t-nowhere"), "{error}");
    }
}
