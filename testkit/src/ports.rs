//! Ports that stay free for one server, however long it takes to start and however often it is
//! restarted.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

/// A port of 127.0.0.1 that is reserved until this is dropped.
///
/// The reservation is a socket that is bound and does not listen. Connections to the port are
/// refused, and the system gives it neither to a client nor to a listener on "any port". A server
/// that is given this port can still listen on it: both sockets have SO_REUSEADDR set, as Postgres,
/// Redis, nginx, tokio and the standard library do for every listener, and the system allows that
/// for as long as only one of them listens.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _reservation: OwnedFd,
}

impl Port {
    /// Reserves a port that nothing uses.
    ///
    /// # Errors
    /// If there is none.
    pub fn reserve() -> Result<Self> {
        let reservation = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .context("could not make a socket")?;
        set_socket_reuseaddr(&reservation, true).context("could not share a port")?;
        bind(&reservation, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).context("there is no free port")?;
        let address = getsockname(&reservation).context("the port is not known")?;
        let address = SocketAddr::try_from(address).context("the address is not one of the internet")?;
        Ok(Self { address, _reservation: reservation })
    }

    /// Reserves several ports.
    ///
    /// # Errors
    /// If there are not that many.
    pub fn several<const N: usize>() -> Result<[Self; N]> {
        let ports = (0..N).map(|_| Self::reserve()).collect::<Result<Vec<_>>>()?;
        ports.try_into().ok().context("another number of ports")
    }

    /// The number of the port.
    pub fn number(&self) -> u16 {
        self.address.port()
    }

    /// The address of a server on it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The number of the port.
impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

#[cfg(test)]
mod facts {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_reserved_port_refuses_and_is_given_to_nothing_else() {
        let port = Port::reserve().unwrap();
        assert_eq!(TcpStream::connect(port.address()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        // There are 28,000 ports by default; half of them are enough to meet every other one.
        let others: Vec<TcpListener> =
            (0..500).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        assert!(others.iter().all(|other| other.local_addr().unwrap() != port.address()));
    }

    #[test]
    fn a_server_takes_over_its_reserved_port_and_returns_to_it() {
        let port = Port::reserve().unwrap();
        for _ in 0..3 {
            let listener = TcpListener::bind(port.address()).unwrap();
            let client = TcpStream::connect(port.address()).unwrap();
            listener.accept().unwrap();
            assert!(TcpListener::bind(port.address()).is_err(), "two listen");
            drop((listener, client));
        }
        assert_eq!(TcpStream::connect(port.address()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}
