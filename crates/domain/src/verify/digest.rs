//! Digests in headers: algorithms, encodings, constant-time comparison.

use aws_lc_rs::{constant_time, hmac};
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};

use super::error::MalformedSignature;

/// Maximum number of signatures in a request. Senders send one, or two during a rotation.
pub const SIGNATURES_MAX: usize = 16;

/// The longest decoded value: an ECDSA P-256 signature in DER.
const DECODED_BYTES_MAX: usize = 72;

/// Hash function of an HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// For senders without a better one.
    Sha1,
    Sha256,
    Sha512,
}

impl Algorithm {
    pub(super) fn digest_bytes(self) -> usize {
        match self {
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        }
    }

    pub(super) fn key(self, secret: &[u8]) -> hmac::Key {
        let algorithm = match self {
            Algorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Algorithm::Sha256 => hmac::HMAC_SHA256,
            Algorithm::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::Key::new(algorithm, secret)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Either case is read; lower case is written.
    Hex,
    /// With padding.
    Base64,
    /// Optional padding is read; none is written.
    Base64Url,
}

impl Encoding {
    /// Decodes without allocation.
    pub(super) fn decode(self, text: &[u8]) -> Result<Decoded, MalformedSignature> {
        let (encoding, text) = match self {
            Encoding::Hex => (HEXLOWER_PERMISSIVE, text),
            Encoding::Base64 => (BASE64, text),
            Encoding::Base64Url => (BASE64URL_NOPAD, without_padding(text)),
        };
        let length = encoding.decode_len(text.len()).map_err(|_| MalformedSignature::Encoding)?;
        let mut decoded = Decoded { bytes: [0; DECODED_BYTES_MAX], length };
        let buffer = decoded.bytes.get_mut(..length).ok_or(MalformedSignature::Length)?;
        decoded.length = encoding.decode_mut(text, buffer).map_err(|_| MalformedSignature::Encoding)?;
        Ok(decoded)
    }

    pub(super) fn encode(self, digest: &[u8]) -> String {
        match self {
            Encoding::Hex => HEXLOWER.encode(digest),
            Encoding::Base64 => BASE64.encode(digest),
            Encoding::Base64Url => BASE64URL_NOPAD.encode(digest),
        }
    }
}

fn without_padding(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    &text[..end]
}

/// A decoded signature.
#[derive(Clone, Copy)]
pub(super) struct Decoded {
    bytes: [u8; DECODED_BYTES_MAX],
    length: usize,
}

impl Decoded {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Compares in constant time; only the lengths are revealed.
pub(super) fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(left, right).is_ok()
}

/// Decoded signatures of a request. One match suffices.
pub(super) struct Candidates {
    digests: [Decoded; SIGNATURES_MAX],
    count: usize,
}

impl Candidates {
    /// Decodes all; unreadable ones are skipped. An error if none is left.
    pub(super) fn decode<'a>(
        encoding: Encoding,
        digest_bytes: usize,
        encoded: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Candidates, MalformedSignature> {
        let nothing = Decoded { bytes: [0; DECODED_BYTES_MAX], length: 0 };
        let mut candidates = Candidates { digests: [nothing; SIGNATURES_MAX], count: 0 };
        let mut problem = None;
        for (index, text) in encoded.enumerate() {
            if index >= SIGNATURES_MAX {
                return Err(MalformedSignature::TooMany);
            }
            match encoding.decode(text) {
                Ok(decoded) if decoded.length == digest_bytes => {
                    candidates.digests[candidates.count] = decoded;
                    candidates.count += 1;
                }
                Ok(_) => problem = problem.or(Some(MalformedSignature::Length)),
                Err(wrong) => problem = problem.or(Some(wrong)),
            }
        }
        if candidates.count == 0 {
            return Err(problem.unwrap_or(MalformedSignature::NoKnownVersion));
        }
        Ok(candidates)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.digests[..self.count].iter().map(Decoded::bytes)
    }

    pub(super) fn contain(&self, digest: &[u8]) -> bool {
        self.iter().any(|candidate| constant_time_eq(candidate, digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_decode_in_every_encoding() {
        let read =
            |encoding: Encoding, text: &str| encoding.decode(text.as_bytes()).map(|decoded| decoded.bytes().to_vec());
        assert_eq!(read(Encoding::Hex, "00fFAb"), Ok(vec![0, 255, 171]));
        assert_eq!(read(Encoding::Base64, "+/8="), Ok(vec![251, 255]));
        assert_eq!(read(Encoding::Base64Url, "-_8"), Ok(vec![251, 255]));
        assert_eq!(read(Encoding::Base64Url, "-_8="), Ok(vec![251, 255]));
        for (encoding, text) in [
            (Encoding::Hex, "0"),
            (Encoding::Hex, "0g"),
            (Encoding::Base64, "+/8"),
            (Encoding::Base64, "-_8="),
            (Encoding::Base64, "+/9="),
            (Encoding::Base64Url, "+/8"),
        ] {
            assert_eq!(read(encoding, text), Err(MalformedSignature::Encoding), "{text}");
        }
        assert_eq!(read(Encoding::Hex, &"0".repeat(146)), Err(MalformedSignature::Length));
        assert_eq!(read(Encoding::Base64, &"A".repeat(4096)), Err(MalformedSignature::Length));
    }

    #[test]
    fn one_readable_signature_suffices() {
        let decode = |texts: &[&str]| {
            let texts = texts.iter().map(|text| text.as_bytes());
            Candidates::decode(Encoding::Hex, 2, texts)
        };
        let candidates = decode(&["zz", "00", "abcd"]).ok().unwrap();
        assert!(candidates.contain(&[0xab, 0xcd]));
        assert!(!candidates.contain(&[0]) && !candidates.contain(&[]));
        let problem = |texts: &[&str]| decode(texts).err().unwrap();
        assert_eq!(problem(&[]), MalformedSignature::NoKnownVersion);
        assert_eq!(problem(&["zz", "00"]), MalformedSignature::Encoding);
        assert_eq!(problem(&["00"]), MalformedSignature::Length);
        assert_eq!(problem(&["abcd"; SIGNATURES_MAX + 1]), MalformedSignature::TooMany);
        assert!(decode(&["abcd"; SIGNATURES_MAX]).is_ok());
    }
}
