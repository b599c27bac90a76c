//! What can go wrong, and libvirt's own errors.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::types::wire_enum;
use crate::xdr::{Decoder, XdrError};

/// Why a call did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Nobody listens, or we may not connect.
    #[error("libvirt's socket {path} cannot be reached: is libvirtd running?")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: Arc<io::Error>,
    },
    /// libvirt wants to know who we are.
    #[error("libvirt asks for authentication ({offered:?}); set auth_unix_rw = \"none\" in libvirtd.conf")]
    Authentication {
        /// The methods that it offers, by number.
        offered: Vec<i32>,
    },
    /// The connection ended before the reply came.
    #[error("the connection to libvirt is closed: {0}")]
    Closed(Arc<str>),
    /// The reply is not what the protocol says.
    #[error("libvirt's reply to {procedure} cannot be read")]
    Reply {
        /// To which call.
        procedure: &'static str,
        /// The cause.
        source: XdrError,
    },
    /// A stream is longer than anybody needs.
    #[error("{procedure} gave more than {limit} bytes")]
    StreamTooLong {
        /// Of which call.
        procedure: &'static str,
        /// What is allowed.
        limit: usize,
    },
    /// libvirt refused.
    #[error("libvirt: {0}")]
    Remote(RemoteError),
}

impl Error {
    /// libvirt's code, when it is libvirt that refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Remote(remote) => Some(remote.code),
            _ => None,
        }
    }

    /// There is no such domain (any more).
    pub fn is_no_domain(&self) -> bool {
        self.code() == Some(ErrorCode::NoDomain)
    }

    /// The operation does not fit the domain's state.
    pub fn is_invalid_operation(&self) -> bool {
        self.code() == Some(ErrorCode::OperationInvalid)
    }

    /// The guest agent is away, silent, or said no.
    pub fn is_agent(&self) -> bool {
        matches!(
            self.code(),
            Some(
                ErrorCode::AgentUnresponsive
                    | ErrorCode::AgentUnsynced
                    | ErrorCode::AgentCommandTimeout
                    | ErrorCode::AgentCommandFailed
            )
        )
    }
}

/// What libvirt says when it refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    /// The kind of error.
    pub code: ErrorCode,
    /// The part of libvirt that raised it, by number.
    pub domain: i32,
    /// For people.
    pub message: String,
}

impl RemoteError {
    pub(crate) fn decode(body: Vec<u8>) -> Result<Self, XdrError> {
        let mut decoder = Decoder::new(body);
        let code = ErrorCode::from(decoder.i32()?);
        let domain = decoder.i32()?;
        let message = decoder.optional(Decoder::string)?.unwrap_or_else(|| format!("error {code:?} without a text"));
        // The level, objects and details follow; the message says all that is in them.
        Ok(Self { code, domain, message })
    }
}

wire_enum! {
    /// The kinds of error that callers tell apart.
    ErrorCode {
        /// Anything inside libvirt or QEMU.
        InternalError = 1,
        /// This driver cannot do that.
        NoSupport = 3,
        /// An argument makes no sense.
        InvalidArgument = 8,
        /// QEMU refused.
        OperationFailed = 9,
        /// The XML cannot be read.
        XmlError = 27,
        /// There is such a domain already.
        DomainExists = 28,
        /// A system call failed.
        SystemError = 38,
        /// The XML is well formed and makes no sense.
        XmlDetail = 35,
        /// There is no such domain.
        NoDomain = 42,
        /// Does not fit the domain's state.
        OperationInvalid = 55,
        /// This QEMU or this machine cannot do what the XML wants.
        ConfigUnsupported = 67,
        /// It took too long.
        OperationTimeout = 68,
        /// Given up on request.
        OperationAborted = 78,
        /// Not for this domain.
        OperationUnsupported = 84,
        /// The guest agent does not answer.
        AgentUnresponsive = 86,
        /// The thing is in use.
        ResourceBusy = 87,
        /// The guest agent answers something else.
        AgentUnsynced = 97,
        /// There is no such device.
        DeviceMissing = 99,
        /// The guest agent took too long.
        AgentCommandTimeout = 112,
        /// The guest agent said no.
        AgentCommandFailed = 113,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Encoder;

    #[test]
    fn an_error_is_decoded_with_code_domain_and_message() {
        let body = Encoder::new().i32(42).i32(10).optional(Some("Domain not found"), Encoder::string).i32(2).finish();
        let error = RemoteError::decode(body).unwrap();
        assert_eq!(error.code, ErrorCode::NoDomain);
        assert_eq!((error.domain, error.to_string().as_str()), (10, "Domain not found"));
        assert!(Error::Remote(error).is_no_domain());
    }

    #[test]
    fn an_unknown_code_is_kept() {
        let body = Encoder::new().i32(9999).i32(0).u32(0).finish();
        assert_eq!(RemoteError::decode(body).unwrap().code, ErrorCode::Other(9999));
    }
}
