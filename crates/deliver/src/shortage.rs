//! What this machine can run short of when it opens a socket: never the endpoint's failure.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;

/// Whether a socket could not be opened, or connected, for want of something of ours.
pub(crate) fn is_shortage(error: &io::Error, address: &SocketAddr) -> bool {
    let Some(errno) = Errno::from_io_error(error) else {
        return error.kind() == io::ErrorKind::OutOfMemory;
    };
    match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::AGAIN => true,
        // All local ports are in use. Where there is no IPv6 it only says that.
        Errno::ADDRNOTAVAIL => address.is_ipv4(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_run_short_of_is_told_from_what_an_endpoint_does() {
        let (v4, v6) = (([192, 0, 2, 1], 443).into(), ([0_u16; 8], 443).into());
        let check = |errno: Errno, address: &SocketAddr| {
            is_shortage(&io::Error::from_raw_os_error(errno.raw_os_error()), address)
        };
        for ours in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::ADDRNOTAVAIL] {
            assert!(check(ours, &v4), "{ours}");
        }
        for theirs in [Errno::CONNREFUSED, Errno::TIMEDOUT, Errno::NETUNREACH, Errno::HOSTUNREACH] {
            assert!(!check(theirs, &v4), "{theirs}");
        }
        assert!(!check(Errno::ADDRNOTAVAIL, &v6), "there is no IPv6 here");
        assert!(is_shortage(&io::ErrorKind::OutOfMemory.into(), &v4));
    }
}
