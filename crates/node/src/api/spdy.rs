//! SPDY/3 frames, as far as port forwarding needs them. `kubectl` still speaks SPDY inside of its websocket. No IO.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::{Decompress, FlushDecompress};

/// The end of the sender's side of a stream.
pub const FINISHED: u8 = 1;
/// A stream was refused: nobody is there to take it.
pub const REFUSED_STREAM: u32 = 3;
/// A frame may not be larger; kubectl's are some kilobytes.
const LARGEST_FRAME: usize = 1 << 20;
/// Headers of one stream may not be larger.
const LARGEST_HEADERS: usize = 16 * 1024;

/// Words of the header compression's dictionary, each with its length in front, as the protocol lists them.
const WORDS: &[&str] = &[
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];
/// The rest of the dictionary, without lengths.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found\
500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 \
Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,\
text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in WORDS {
        bytes.put_u32(u32::try_from(word.len()).unwrap_or(0));
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(TAIL.as_bytes());
    bytes
}

/// What cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpdyError {
    /// A frame is too large.
    #[error("a SPDY frame of {0} bytes is too large")]
    TooLarge(usize),
    /// A frame is too short for what it is.
    #[error("a SPDY frame is cut short")]
    Short,
    /// Headers do not decompress.
    #[error("SPDY headers do not decompress")]
    Headers,
    /// Another version.
    #[error("SPDY version {0} is not spoken here")]
    Version(u16),
}

/// What a client sends that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A new stream with its headers.
    Open {
        /// Its number.
        stream: u32,
        /// Names are in lower case.
        headers: Vec<(String, String)>,
        /// The client will send nothing.
        finished: bool,
    },
    /// Bytes.
    Data {
        /// The stream.
        stream: u32,
        /// The bytes.
        bytes: Bytes,
        /// Nothing follows.
        finished: bool,
    },
    /// The stream is given up.
    Reset {
        /// The stream.
        stream: u32,
    },
    /// Wants an answer with the same number.
    Ping {
        /// The number.
        number: u32,
    },
    /// No new streams follow.
    GoAway,
    /// Settings, windows: of no interest here.
    Other,
}

/// Reads frames of one connection.
pub struct Reader {
    buffer: BytesMut,
    inflate: Decompress,
}

impl Default for Reader {
    fn default() -> Self {
        Self { buffer: BytesMut::new(), inflate: Decompress::new(true) }
    }
}

impl Reader {
    /// Takes in bytes of the connection.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// When the bytes are no SPDY; the connection cannot go on.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, SpdyError> {
        const HEAD: usize = 8;
        let Some(head) = self.buffer.get(..HEAD) else { return Ok(None) };
        let length = usize::from(head[5]) << 16 | usize::from(head[6]) << 8 | usize::from(head[7]);
        if length > LARGEST_FRAME {
            return Err(SpdyError::TooLarge(length));
        }
        if self.buffer.len() < HEAD + length {
            return Ok(None);
        }
        let mut head = self.buffer.split_to(HEAD);
        let body = self.buffer.split_to(length).freeze();
        let (first, flags) = (head.get_u32(), head.get_u8());
        if first >> 31 == 0 {
            return Ok(Some(Frame::Data { stream: first, bytes: body, finished: flags & FINISHED != 0 }));
        }
        let version = (first >> 16 & 0x7fff) as u16;
        if version != 3 {
            return Err(SpdyError::Version(version));
        }
        self.control(first as u16, flags, body).map(Some)
    }

    fn control(&mut self, kind: u16, flags: u8, mut body: Bytes) -> Result<Frame, SpdyError> {
        match kind {
            1 => {
                // Number, associated stream, priority and slot.
                let stream = body.try_get_u32().map_err(|_| SpdyError::Short)? & 0x7fff_ffff;
                if body.len() < 6 {
                    return Err(SpdyError::Short);
                }
                let headers = self.headers(&body[6..])?;
                Ok(Frame::Open { stream, headers, finished: flags & FINISHED != 0 })
            }
            3 => Ok(Frame::Reset { stream: body.try_get_u32().map_err(|_| SpdyError::Short)? & 0x7fff_ffff }),
            6 => Ok(Frame::Ping { number: body.try_get_u32().map_err(|_| SpdyError::Short)? }),
            7 => Ok(Frame::GoAway),
            8 => {
                // Nobody needs them, but the compression goes over all headers of a connection.
                let block = body.get(4..).ok_or(SpdyError::Short)?.to_vec();
                self.headers(&block)?;
                Ok(Frame::Other)
            }
            _ => Ok(Frame::Other),
        }
    }

    fn headers(&mut self, block: &[u8]) -> Result<Vec<(String, String)>, SpdyError> {
        let mut plain = Bytes::from(self.inflate(block)?);
        let count = plain.try_get_u32().map_err(|_| SpdyError::Short)?;
        let mut headers = Vec::new();
        for _ in 0..count {
            headers.push((text(&mut plain)?, text(&mut plain)?));
        }
        Ok(headers)
    }

    /// One stream of compressed bytes runs through all headers of a connection; each block ends with a flush.
    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let mut plain = vec![0; LARGEST_HEADERS];
        let mut length = 0;
        loop {
            let (read_before, written_before) = (self.inflate.total_in(), self.inflate.total_out());
            let step = self.inflate.decompress(block, &mut plain[length..], FlushDecompress::Sync);
            block = &block[usize::try_from(self.inflate.total_in() - read_before).unwrap_or(0)..];
            length += usize::try_from(self.inflate.total_out() - written_before).unwrap_or(0);
            match step {
                Ok(_) if block.is_empty() => {
                    plain.truncate(length);
                    return Ok(plain);
                }
                Ok(_) if length < plain.len() && self.inflate.total_in() > read_before => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.inflate.set_dictionary(&dictionary()).map_err(|_| SpdyError::Headers)?;
                }
                _ => return Err(SpdyError::Headers),
            }
        }
    }
}

fn text(plain: &mut Bytes) -> Result<String, SpdyError> {
    let length = plain.try_get_u32().map_err(|_| SpdyError::Short)? as usize;
    if plain.len() < length {
        return Err(SpdyError::Short);
    }
    Ok(String::from_utf8_lossy(&plain.split_to(length)).into_owned())
}

/// Makes frames of one connection.
#[derive(Debug, Default)]
pub struct Writer {
    /// The compressed stream of headers has begun.
    begun: bool,
}

fn control(kind: u16, flags: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(8 + body.len());
    frame.put_u16(0x8003);
    frame.put_u16(kind);
    frame.put_u32(u32::from(flags) << 24 | u32::try_from(body.len()).unwrap_or(0));
    frame.extend_from_slice(body);
    frame
}

impl Writer {
    /// Accepts a stream, without headers.
    pub fn reply(&mut self, stream: u32) -> Vec<u8> {
        let mut body = stream.to_be_bytes().to_vec();
        if !self.begun {
            self.begun = true;
            // The head of a zlib stream without a dictionary.
            body.extend_from_slice(&[0x78, 0x01]);
        }
        // A block that is stored as it is: last-block flag and type, length, length inverted, then "no headers". An empty block after
        // it is a flush: some readers give nothing out before they have seen it.
        body.extend_from_slice(&[0x00, 0x04, 0x00, 0xfb, 0xff, 0, 0, 0, 0]);
        body.extend_from_slice(&[0x00, 0x00, 0x00, 0xff, 0xff]);
        control(2, 0, &body)
    }

    /// Gives a stream up.
    pub fn reset(stream: u32, reason: u32) -> Vec<u8> {
        control(3, 0, &[stream.to_be_bytes(), reason.to_be_bytes()].concat())
    }

    /// Answers a ping.
    pub fn ping(number: u32) -> Vec<u8> {
        control(6, 0, &number.to_be_bytes())
    }

    /// Bytes of a stream; `finished`: nothing follows.
    pub fn data(stream: u32, bytes: &[u8], finished: bool) -> Vec<u8> {
        let flags = if finished { FINISHED } else { 0 };
        let mut frame = Vec::with_capacity(8 + bytes.len());
        frame.put_u32(stream & 0x7fff_ffff);
        frame.put_u32(u32::from(flags) << 24 | u32::try_from(bytes.len()).unwrap_or(0));
        frame.extend_from_slice(bytes);
        frame
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression, FlushCompress};

    use super::*;

    fn compressed(compress: &mut Compress, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut plain = u32::try_from(headers.len()).unwrap().to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
            plain.extend_from_slice(text.as_bytes());
        }
        let mut out = Vec::with_capacity(4096);
        compress.compress_vec(&plain, &mut out, FlushCompress::Sync).unwrap();
        out
    }

    fn open(compress: &mut Compress, stream: u32, headers: &[(&str, &str)]) -> Vec<u8> {
        let block = compressed(compress, headers);
        control(1, 0, &[&stream.to_be_bytes()[..], &[0; 6], &block].concat())
    }

    #[test]
    fn the_dictionary_is_the_protocols() {
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in dictionary() {
            low = (low + u32::from(byte)) % 65521;
            high = (high + low) % 65521;
        }
        assert_eq!(high << 16 | low, 0xe3c6_a7c2);
    }

    #[test]
    fn headers_of_one_connection_share_their_compression() {
        let mut compress = Compress::new(Compression::best(), true);
        compress.set_dictionary(&dictionary()).unwrap();
        let mut reader = Reader::default();
        for stream in [1, 3, 5] {
            let frame = open(&mut compress, stream, &[("streamtype", "data"), ("port", "80")]);
            let (first, second) = frame.split_at(11);
            reader.feed(first);
            assert_eq!(reader.next_frame(), Ok(None));
            reader.feed(second);
            let headers = vec![("streamtype".to_owned(), "data".to_owned()), ("port".to_owned(), "80".to_owned())];
            assert_eq!(reader.next_frame(), Ok(Some(Frame::Open { stream, headers, finished: false })));
        }
    }

    #[test]
    fn other_frames_are_told_apart() {
        let mut reader = Reader::default();
        reader.feed(&Writer::data(3, b"abc", true));
        reader.feed(&Writer::ping(7));
        reader.feed(&Writer::reset(3, REFUSED_STREAM));
        reader.feed(&control(9, 0, &[0; 8]));
        let data = Frame::Data { stream: 3, bytes: Bytes::from_static(b"abc"), finished: true };
        assert_eq!(reader.next_frame(), Ok(Some(data)));
        assert_eq!(reader.next_frame(), Ok(Some(Frame::Ping { number: 7 })));
        assert_eq!(reader.next_frame(), Ok(Some(Frame::Reset { stream: 3 })));
        assert_eq!(reader.next_frame(), Ok(Some(Frame::Other)));
        assert_eq!(reader.next_frame(), Ok(None));
    }

    #[test]
    fn what_is_no_spdy_ends_the_connection() {
        let fed = |bytes: &[u8]| {
            let mut reader = Reader::default();
            reader.feed(bytes);
            reader.next_frame().unwrap_err()
        };
        assert_eq!(fed(&[0, 0, 0, 1, 0, 0xff, 0xff, 0xff]), SpdyError::TooLarge(0xff_ffff));
        assert_eq!(fed(&[0x80, 2, 0, 1, 0, 0, 0, 0]), SpdyError::Version(2));
        assert_eq!(fed(&control(1, 0, &[0; 4])), SpdyError::Short);
        assert_eq!(fed(&control(1, 0, &[0; 20])), SpdyError::Headers);
    }

    #[test]
    fn replies_are_a_valid_compressed_stream() {
        let mut writer = Writer::default();
        let mut reader = Reader::default();
        for stream in [1, 3] {
            let reply = writer.reply(stream);
            assert_eq!(reader.headers(&reply[12..]), Ok(Vec::new()));
        }
    }
}
