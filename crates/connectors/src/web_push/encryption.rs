//! Encryption of a message for one browser: RFC 8291 over `aes128gcm` (RFC 8188), one record.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, ECDH_P256, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::hmac;

/// Size of a record, in the header of the content.
const RECORD_BYTES: u32 = 4_096;

/// The browser's keys, as its subscription has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipient<'a> {
    pub(super) public_key: &'a [u8],
    pub(super) auth: &'a [u8],
}

/// A new key pair and a new salt for one message.
pub(super) fn encrypt(message: &[u8], recipient: Recipient<'_>) -> Option<Vec<u8>> {
    let mut salt = [0; 16];
    aws_lc_rs::rand::fill(&mut salt).ok()?;
    encrypt_with(message, recipient, &PrivateKey::generate(&ECDH_P256).ok()?, salt)
}

/// `None` if the public key is not a point of P-256.
fn encrypt_with(message: &[u8], recipient: Recipient<'_>, own: &PrivateKey, salt: [u8; 16]) -> Option<Vec<u8>> {
    let own_public = own.compute_public_key().ok()?;
    let own_public = own_public.as_ref();
    let theirs = UnparsedPublicKey::new(&ECDH_P256, recipient.public_key);
    let shared = agreement::agree(own, theirs, (), |secret| Ok(secret.to_vec())).ok()?;
    let info = [b"WebPush: info\0", recipient.public_key, own_public, &[1]].concat();
    let input = tag(&tag(recipient.auth, &shared), &info);
    let start = tag(&salt, &input);
    let key = tag(&start, b"Content-Encoding: aes128gcm\0\x01");
    let nonce = tag(&start, b"Content-Encoding: nonce\0\x01");

    let sealing = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key[..16]).ok()?);
    let nonce = Nonce::try_assume_unique_for_key(&nonce[..12]).ok()?;
    // 2 marks the last record; there is no padding.
    let mut record = [message, &[2]].concat();
    sealing.seal_in_place_append_tag(nonce, Aad::empty(), &mut record).ok()?;
    let length = u8::try_from(own_public.len()).ok()?;
    Some([&salt[..], &RECORD_BYTES.to_be_bytes(), &[length], own_public, &record].concat())
}

fn tag(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::BASE64URL_NOPAD;

    fn bytes(text: &str) -> Vec<u8> {
        BASE64URL_NOPAD.decode(text.as_bytes()).unwrap()
    }

    /// RFC 8291, appendix A.
    #[test]
    fn message_of_the_specification_is_encrypted_as_there() {
        let own = bytes("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw");
        let own = PrivateKey::from_private_key(&ECDH_P256, &own).unwrap();
        let public_key =
            bytes("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4");
        let auth = bytes("BTBZMqHH6r4Tts7J_aSIgg");
        let recipient = Recipient { public_key: &public_key, auth: &auth };
        let salt: [u8; 16] = bytes("DGv6ra1nlYgDCS1FRnbzlw").try_into().unwrap();
        let body = encrypt_with(b"When I grow up, I want to be a watermelon", recipient, &own, salt).unwrap();
        assert_eq!(
            BASE64URL_NOPAD.encode(&body),
            "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
        );
    }

    #[test]
    fn point_outside_of_the_curve_is_refused() {
        let recipient = Recipient { public_key: &[4; 65], auth: &[0; 16] };
        assert_eq!(encrypt(b"x", recipient), None);
    }
}
