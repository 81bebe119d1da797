//! The wire format of protocol buffers: fields of a message one after the other, each with a number. What is read is
//! borrowed from the file, and every length is checked against what is left of it.

/// The value of a field, by its wire type; what it means is up to the field's number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WireValue<'a> {
    /// A whole number; a signed one in two's complement.
    Varint(u64),
    /// Four bytes, little-endian: an f32 in all that is read here.
    Fixed32([u8; 4]),
    /// Eight bytes, which nothing here uses.
    Fixed64,
    /// A text, a message or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> WireValue<'a> {
    /// Returns the bytes of a text, a message or packed numbers. Fails if the field has a number.
    pub fn bytes(self) -> Result<&'a [u8], String> {
        match self {
            WireValue::Bytes(bytes) => Ok(bytes),
            _ => Err("a field has a number in place of bytes".to_owned()),
        }
    }

    /// Returns a text. The error says that the field is a number, or not UTF-8.
    pub fn text(self) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "a name is not UTF-8".to_owned())
    }

    /// Returns a whole number. The error says that the field holds bytes.
    pub fn integer(self) -> Result<i64, String> {
        match self {
            WireValue::Varint(number) => Ok(number.cast_signed()),
            _ => Err("a field has bytes in place of a number".to_owned()),
        }
    }

    /// Adds the numbers of a repeated field, packed or not, to a list of at most `count_max`. Fails if one can't be
    /// parsed or there are more; the list then has some of them.
    pub fn append_integers(self, list: &mut Vec<i64>, count_max: usize) -> Result<(), String> {
        match self {
            WireValue::Bytes(bytes) => {
                for number in packed_varints(bytes).take(count_max + 1) {
                    list.push(number?);
                }
            }
            other => list.push(other.integer()?),
        }
        if list.len() > count_max { Err(format!("a list has more than {count_max} numbers")) } else { Ok(()) }
    }
}

/// The fields of a message, in the file's order.
pub struct WireFields<'a> {
    remaining: &'a [u8],
}

/// Returns the fields of a message; the last item is an error where it breaks off.
pub fn fields(message: &[u8]) -> WireFields<'_> {
    WireFields { remaining: message }
}

/// Returns packed whole numbers. A number that is cut off, or has more than ten bytes, is an error and the last of them.
pub fn packed_varints(mut bytes: &[u8]) -> impl Iterator<Item = Result<i64, String>> {
    std::iter::from_fn(move || {
        let number = (!bytes.is_empty()).then(|| varint(&mut bytes))?;
        if number.is_err() {
            bytes = &[];
        }
        Some(number.map(u64::cast_signed))
    })
}

impl<'a> Iterator for WireFields<'a> {
    type Item = Result<(u64, WireValue<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        let field = (!self.remaining.is_empty()).then(|| self.field())?;
        if field.is_err() {
            self.remaining = &[];
        }
        Some(field)
    }
}

impl<'a> WireFields<'a> {
    fn field(&mut self) -> Result<(u64, WireValue<'a>), String> {
        let key = varint(&mut self.remaining)?;
        let value = match key & 7 {
            0 => WireValue::Varint(varint(&mut self.remaining)?),
            1 => self.take(8).map(|_| WireValue::Fixed64)?,
            2 => {
                let length = varint(&mut self.remaining)?;
                WireValue::Bytes(self.take(length)?)
            }
            5 => WireValue::Fixed32(*self.take(4)?.first_chunk().ok_or_else(truncation_error)?),
            other => return Err(format!("it is not ONNX: a field is of wire type {other}")),
        };
        Ok((key >> 3, value))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let parts = usize::try_from(length).ok().and_then(|length| self.remaining.split_at_checked(length));
        let (taken, rest) = parts.ok_or_else(truncation_error)?;
        self.remaining = rest;
        Ok(taken)
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or_else(truncation_error)?;
        *bytes = rest;
        number |= u64::from(byte & 127) << shift;
        if *byte < 128 {
            return Ok(number);
        }
    }
    Err("it is not ONNX: a number has more than ten bytes".to_owned())
}

fn truncation_error() -> String {
    "it is cut short, or not ONNX".to_owned()
}
