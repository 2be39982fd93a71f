//! The text normaliser ecotone beside this program: gRPC over a Unix socket.
//!
//! The messages are those of `ecotone/v1/normalization.proto`, written by hand, so that nobody needs a protobuf compiler; of its service
//! only `Normalize` is called. One unary call is a POST over HTTP/2: a frame of five bytes and the message there and back, and the
//! status in the trailers. A normaliser that does not answer in time is not there: nothing is measured then, and nothing made up.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use prost::Message;

use super::super::record::milliseconds;
use crate::foreign::clipped;

/// Longest wait for a connection, and for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The host has no meaning on a socket of this machine.
const NORMALIZE: &str = "http://localhost/ecotone.v1.NormalizationService/Normalize";
/// Flag and length in front of a message.
const FRAME_BYTES: usize = 5;
const MOST_BYTES: usize = 4 << 20;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NormalizeRequest {
    #[prost(string, tag = "1")]
    pub(super) text: String,
    #[prost(string, tag = "2")]
    pub(super) language: String,
    #[prost(bool, tag = "3")]
    pub(super) show_token_links: bool,
    #[prost(bool, tag = "4")]
    pub(super) split_sentences: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NormalizeResponse {
    #[prost(string, tag = "1")]
    pub(super) normalized_text: String,
    #[prost(string, tag = "2")]
    pub(super) token_links: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) sentences: Vec<String>,
    #[prost(float, tag = "4")]
    pub(super) latency_ms: f32,
}

/// A normaliser that has answered once.
#[derive(Clone, Debug)]
pub struct Sidecar {
    requests: SendRequest<Bytes>,
}

/// One normalised text.
#[derive(Debug)]
pub(super) struct Spoken {
    pub(super) text: String,
    /// As the server measured it; `None` where it says nothing.
    pub(super) server_ms: Option<f64>,
    pub(super) round_trip_ms: f64,
}

impl Sidecar {
    /// `address`: `unix:///path`, or the path alone. Errors: why it is not there, in words.
    #[cfg(unix)]
    pub async fn connect(address: &str) -> Result<Self, String> {
        let path = address.strip_prefix("unix://").unwrap_or(address);
        let connect = async {
            let stream = tokio::net::UnixStream::connect(path)
                .await
                .map_err(|cause| format!("nobody listens at {path} ({cause})"))?;
            let (requests, connection) = h2::client::handshake(stream)
                .await
                .map_err(|cause| format!("{path} speaks no gRPC ({cause})"))?;
            // Ends with the last handle; what goes wrong shows in the calls.
            tokio::spawn(async move { drop(connection.await) });
            Ok(Self { requests })
        };
        let sidecar = in_time(connect).await?;
        // The first request of all is slower than the others; it is not counted.
        sidecar.normalize("Warmup 1 2 3.").await?;
        Ok(sidecar)
    }

    /// Errors: always.
    #[cfg(not(unix))]
    #[allow(clippy::unused_async, reason = "the other systems wait")]
    pub async fn connect(_address: &str) -> Result<Self, String> {
        Err("this system has no Unix sockets".to_owned())
    }

    pub(super) async fn normalize(&self, text: &str) -> Result<Spoken, String> {
        let request = NormalizeRequest {
            text: text.to_owned(),
            language: "en".to_owned(),
            show_token_links: false,
            split_sentences: true,
        };
        let start = Instant::now();
        let reply = in_time(self.call(&request)).await?;
        Ok(Spoken {
            text: reply.normalized_text,
            server_ms: Some(f64::from(reply.latency_ms)).filter(|ms| *ms > 0.0),
            round_trip_ms: milliseconds(start.elapsed()),
        })
    }

    async fn call(&self, message: &NormalizeRequest) -> Result<NormalizeResponse, String> {
        let broken = |cause: h2::Error| format!("the connection broke: {cause}");
        let request = http::Request::post(NORMALIZE)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .map_err(|cause| cause.to_string())?;
        let mut requests = self.requests.clone().ready().await.map_err(broken)?;
        let (response, mut body) = requests.send_request(request, false).map_err(broken)?;
        body.send_data(framed(message), true).map_err(broken)?;
        let response = response.await.map_err(broken)?;
        if !response.status().is_success() {
            return Err(format!("it answered HTTP {}", response.status().as_u16()));
        }
        let (head, mut stream) = response.into_parts();
        let mut bytes = BytesMut::new();
        while let Some(chunk) = stream.data().await {
            let chunk = chunk.map_err(broken)?;
            stream.flow_control().release_capacity(chunk.len()).map_err(broken)?;
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MOST_BYTES {
                return Err(format!("its answer is larger than {} MiB", MOST_BYTES >> 20));
            }
        }
        let trailers = stream.trailers().await.map_err(broken)?.unwrap_or_default();
        // A call that failed at once has its status in the head.
        let header = |name: &str| {
            let value = trailers.get(name).or_else(|| head.headers.get(name))?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        match header("grpc-status").as_deref() {
            Some("0") => unframed(&bytes),
            Some(code) => {
                let message = clipped(&header("grpc-message").unwrap_or_default(), 200);
                Err(format!("it refused, gRPC status {}: {message}", clipped(code, 20)))
            }
            None => Err("its answer has no gRPC status".to_owned()),
        }
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = |_| Err(format!("no answer within {} s", PATIENCE.as_secs()));
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(late)
}

/// Not compressed, its length, the message.
fn framed(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::with_capacity(FRAME_BYTES + message.encoded_len());
    frame.put_u8(0);
    frame.put_u32(message.encoded_len() as u32);
    frame.extend_from_slice(&message.encode_to_vec());
    frame.freeze()
}

fn unframed<M: Message + Default>(bytes: &[u8]) -> Result<M, String> {
    let (head, message) = bytes.split_at_checked(FRAME_BYTES).ok_or("its answer holds no message")?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if head[0] != 0 {
        return Err("its answer is compressed, which was not asked for".to_owned());
    }
    if length != message.len() {
        return Err(format!("its message has {} bytes, and {length} were announced", message.len()));
    }
    M::decode(message).map_err(|cause| format!("its message cannot be read: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_bytes_of_the_protocol() {
        let request = NormalizeRequest {
            text: "a 1".into(),
            language: "en".into(),
            show_token_links: false,
            split_sentences: true,
        };
        // Flag, length; field 1, three bytes; field 2, two bytes; field 4, true. A field at its default is left out.
        assert_eq!(&framed(&request)[..], b"\0\0\0\0\x0b\x0a\x03a 1\x12\x02en\x20\x01");
        let reply: NormalizeResponse =
            unframed(b"\0\0\0\0\x0e\x0a\x03a b\x1a\x02cd\x25\0\0\xc0\x3f").unwrap();
        assert_eq!((reply.normalized_text.as_str(), reply.latency_ms), ("a b", 1.5));
        assert_eq!(reply.sentences, ["cd"]);
        for bytes in [&b""[..], b"\0\0\0", b"\x01\0\0\0\0", b"\0\0\0\0\x09x", b"\0\0\0\0\x01\xff"] {
            assert!(unframed::<NormalizeResponse>(bytes).is_err(), "{bytes:?}");
        }
    }
}
