//! Decodes content encodings, up to the body limit of the flow.

use std::borrow::Cow;
use std::io::Read;

use hyper::{HeaderMap, StatusCode};

use super::answer::HttpProblem;

/// Decodes the body. The signature has been verified over the encoded bytes.
pub(super) fn decode<'b>(headers: &HeaderMap, body: &'b [u8], bytes_max: u64) -> Result<Cow<'b, [u8]>, HttpProblem> {
    let mut encodings =
        headers.get_all("content-encoding").iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let named = |name: &[u8]| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity");
    let Some(encoding) = encodings.find(|name| named(name.trim_ascii())) else { return Ok(Cow::Borrowed(body)) };
    let encoding = encoding.trim_ascii().to_ascii_lowercase();
    if encodings.any(|name| named(name.trim_ascii())) {
        return Err(unsupported("several encodings"));
    }
    let decoded = match encoding.as_slice() {
        b"gzip" | b"x-gzip" => bounded(flate2::read::MultiGzDecoder::new(body), bytes_max),
        // `deflate` means zlib, but some senders omit the zlib header.
        b"deflate" => match body {
            [head, ..] if head & 0x0f == 8 => bounded(flate2::read::ZlibDecoder::new(body), bytes_max),
            _ => bounded(flate2::read::DeflateDecoder::new(body), bytes_max),
        },
        b"br" => bounded(brotli_decompressor::Decompressor::new(body, 4096), bytes_max),
        b"zstd" => match ruzstd::decoding::StreamingDecoder::new(body) {
            Ok(reader) => bounded(reader, bytes_max),
            Err(error) => Err(Failed::Broken(error.to_string())),
        },
        other => return Err(unsupported(&String::from_utf8_lossy(other))),
    };
    match decoded {
        Ok(bytes) => Ok(Cow::Owned(bytes)),
        Err(Failed::TooLarge) => Err(HttpProblem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body-too-large",
            format!("the decompressed body exceeds the limit of this flow, {bytes_max} bytes"),
        )),
        Err(Failed::Broken(said)) => Err(HttpProblem::new(
            StatusCode::BAD_REQUEST,
            "content-encoding-invalid",
            format!("the body is not valid {}: {said}", String::from_utf8_lossy(&encoding)),
        )),
    }
}

fn unsupported(encoding: &str) -> HttpProblem {
    let encoding: String = encoding.chars().take(40).collect();
    HttpProblem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "content-encoding-unsupported",
        format!("the content encoding is {encoding}; gzip, deflate, br and zstd are supported"),
    )
}

enum Failed {
    TooLarge,
    Broken(String),
}

fn bounded(reader: impl Read, bytes_max: u64) -> Result<Vec<u8>, Failed> {
    let mut bytes = Vec::new();
    // Reads one byte over the limit to detect an excess.
    let read = reader.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes);
    if bytes.len() as u64 > bytes_max {
        return Err(Failed::TooLarge);
    }
    match read {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Failed::Broken(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbitrary_bytes_never_panic_in_any_encoding() {
        for encoding in ["gzip", "deflate", "br", "zstd", "compress", "gzip, br"] {
            let headers = HeaderMap::from_iter([(hyper::header::CONTENT_ENCODING, encoding.parse().unwrap())]);
            for body in [&b""[..], b"{}", b"\x1f\x8b\x08", b"\x78\x9c\x00", b"\x28\xb5\x2f\xfd\x00", &[0xff; 64]] {
                let _ = decode(&headers, body, 1024);
            }
        }
        let headers = HeaderMap::from_iter([(hyper::header::CONTENT_ENCODING, "identity".parse().unwrap())]);
        assert!(matches!(decode(&headers, b"{}", 1), Ok(Cow::Borrowed(b"{}"))));
    }
}
