//! The listening socket, and what to tell the operator about it.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use super::keys::Keys;

/// Connections that may wait to be accepted; the system may allow fewer. A burst of clients should meet the queue, which
/// says when to come back, and not a refused connection.
const BACKLOG: u32 = 4096;

/// Listens on `address`; port 0 takes a free one.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait for old connections to time out. On Windows the option means something else.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// What is risky about serving there, if anything is.
#[must_use]
pub fn warning(address: SocketAddr, keys: &Keys) -> Option<&'static str> {
    (!address.ip().is_loopback() && keys.is_empty()).then_some(
        "listening beyond this machine without an API key: whoever reaches the port is served; hint: pass --api-key-file or set \
         DGEMMA_API_KEYS",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_open_door_is_warned_about() {
        let keys = Keys::load(None, Some("key".into())).unwrap();
        for (address, without_keys) in [
            ("127.0.0.1:80", false),
            ("[::1]:80", false),
            ("0.0.0.0:80", true),
            ("[::]:80", true),
            ("10.0.0.7:80", true),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(warning(address, &Keys::default()).is_some(), without_keys, "{address}");
            assert_eq!(warning(address, &keys), None, "{address}");
        }
    }
}
