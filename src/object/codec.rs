//! The one byte form of everything that is stored, hashed or signed outside segments.
//!
//! Numbers are LEB128 varints unless a width is named; texts and byte strings are a varint length
//! and their bytes. The same value always gives the same bytes.

use thiserror::Error;

use super::Hash;

/// Says that stored bytes are not of the form that was expected there.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CodecError {
    /// The bytes end before the value does.
    #[error("the bytes end in the middle of a value")]
    Short,
    /// A varint has more than 64 bits.
    #[error("a number is too large")]
    Number,
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// A code unknown to this version.
    #[error("unknown code {0}, which may come from a newer version")]
    Code(u8),
    /// A stored setting has a value that it can't have.
    #[error("the setting {0} has a value that it can't have")]
    Setting(&'static str),
}

/// Collects the bytes of a value, which a [`Reader`] takes in the same order.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Starts with no bytes and no header: [`Writer::finish`] gives just what was appended.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Appends one byte.
    pub fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// Appends a varint: 1 to 10 bytes.
    pub fn number(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    /// Appends a signed number of 8 bytes, little-endian.
    pub fn signed(&mut self, value: i64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends the number of the bytes as a varint, and the bytes.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.number(value.len() as u64).raw(value)
    }

    /// Appends the number of bytes of the text's UTF-8 as a varint, and these.
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    /// Appends a byte that tells whether a text follows, and the text.
    pub fn optional_text(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            None => self.byte(0),
            Some(text) => self.byte(1).text(text),
        }
    }

    /// Appends a hash's 32 bytes, without a length.
    pub fn hash(&mut self, value: &Hash) -> &mut Self {
        self.raw(&value.0)
    }

    /// Appends bytes without a length; the reader must know how many.
    pub fn raw(&mut self, value: &[u8]) -> &mut Self {
        self.0.extend_from_slice(value);
        self
    }

    /// Returns the bytes written so far; more may follow.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes without a copy.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads what a [`Writer`] wrote, in the same order.
///
/// [`CodecError::Short`] wherever the bytes end before the value; each method names its other errors. After an error
/// the place is unspecified: give up the reader. No length that is read makes it allocate.
///
/// ```
/// use engramfs::object::{CodecError, Reader, Writer};
///
/// let mut out = Writer::new();
/// out.number(300).text("tea");
/// let bytes = out.finish();
///
/// let mut input = Reader::new(&bytes);
/// assert_eq!(input.number(), Ok(300));
/// assert_eq!(input.text(), Ok("tea"));
/// assert!(input.is_empty());
/// assert_eq!(Reader::new(&bytes[..1]).number(), Err(CodecError::Short));
/// ```
#[derive(Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts at the first byte and checks nothing yet; what is read is borrowed from `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// Returns the next `count` bytes. [`CodecError::Short`] if fewer are left; none is taken then.
    pub fn raw(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(CodecError::Short)?;
        self.0 = tail;
        Ok(head)
    }

    /// Returns one byte. [`CodecError::Short`] if none is left.
    pub fn byte(&mut self) -> Result<u8, CodecError> {
        Ok(self.raw(1)?[0])
    }

    /// Returns a varint. [`CodecError::Number`] if it has more than 64 bits.
    pub fn number(&mut self) -> Result<u64, CodecError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(CodecError::Number)
    }

    /// Returns a varint as a length or count, which is at most the number of bytes left, so that damage can't ask for
    /// much memory. [`CodecError::Short`] if it is larger; else fails like [`Reader::number`].
    pub fn length(&mut self) -> Result<usize, CodecError> {
        let value = usize::try_from(self.number()?).map_err(|_| CodecError::Number)?;
        if value > self.0.len() { Err(CodecError::Short) } else { Ok(value) }
    }

    /// Returns a signed number of 8 bytes. Little-endian. [`CodecError::Short`] if fewer than 8 bytes are left.
    pub fn signed(&mut self) -> Result<i64, CodecError> {
        let bytes = self.raw(8)?.try_into().map_err(|_| CodecError::Short)?;
        Ok(i64::from_le_bytes(bytes))
    }

    /// Returns a byte string. It is borrowed, not copied. [`CodecError::Short`] if fewer bytes are left than its length
    /// says.
    pub fn bytes(&mut self) -> Result<&'a [u8], CodecError> {
        let length = self.length()?;
        self.raw(length)
    }

    /// Returns a text. [`CodecError::Text`] if it is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, CodecError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| CodecError::Text)
    }

    /// Returns a text that may be absent. [`CodecError::Code`] if the byte before it is neither 0 nor 1.
    pub fn optional_text(&mut self) -> Result<Option<&'a str>, CodecError> {
        match self.byte()? {
            0 => Ok(None),
            1 => self.text().map(Some),
            code => Err(CodecError::Code(code)),
        }
    }

    /// Returns a hash. It has 32 bytes: [`CodecError::Short`] if fewer are left.
    pub fn hash(&mut self) -> Result<Hash, CodecError> {
        let bytes = self.raw(32)?.try_into().map_err(|_| CodecError::Short)?;
        Ok(Hash(bytes))
    }

    /// Returns the bytes that were not read yet.
    pub fn remaining(&self) -> &'a [u8] {
        self.0
    }

    /// Returns whether everything was read. Bytes left over are not an error of the reader: the caller checks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn everything_reads_back_in_order() {
        let mut out = Writer::new();
        out.number(0).number(127).number(128).number(u64::MAX).signed(-5).text("héllo").optional_text(None);
        out.optional_text(Some("x")).hash(&Hash([7; 32])).byte(9);
        let bytes = out.finish();
        let mut input = Reader::new(&bytes);
        assert_eq!(input.number().unwrap(), 0);
        assert_eq!(input.number().unwrap(), 127);
        assert_eq!(input.number().unwrap(), 128);
        assert_eq!(input.number().unwrap(), u64::MAX);
        assert_eq!(input.signed().unwrap(), -5);
        assert_eq!(input.text().unwrap(), "héllo");
        assert_eq!(input.optional_text().unwrap(), None);
        assert_eq!(input.optional_text().unwrap(), Some("x"));
        assert_eq!(input.hash().unwrap(), Hash([7; 32]));
        assert_eq!(input.byte().unwrap(), 9);
        assert!(input.is_empty());
    }

    #[test]
    fn damaged_bytes_are_errors_and_never_panics() {
        assert_eq!(Reader::new(&[0xff; 11]).number(), Err(CodecError::Number));
        assert_eq!(Reader::new(&[5, 1]).bytes(), Err(CodecError::Short));
        assert_eq!(Reader::new(&[1, 0xff]).text(), Err(CodecError::Text));
        assert_eq!(Reader::new(&[2]).optional_text(), Err(CodecError::Code(2)));
    }
}
