//! Numbers in six bits a byte: lowest bits first in the line table, highest first in the exception
//! table.

/// Reads bytes in order.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn next(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.position).copied()?;
        self.position += 1;
        Some(byte)
    }

    /// A byte below 0x80, as a number.
    pub(crate) fn plain(&mut self) -> Option<u32> {
        let byte = self.next()?;
        (byte < 0x80).then_some(u32::from(byte))
    }

    /// A number of the line table.
    pub(crate) fn unsigned(&mut self) -> Option<u32> {
        let mut value = 0_u32;
        let mut shift = 0;
        loop {
            let byte = self.plain()?;
            let bits = byte & 63;
            if shift > 30 || bits.checked_shl(shift)? >> shift != bits {
                return None;
            }
            value |= bits << shift;
            shift += 6;
            if byte & 64 == 0 {
                return Some(value);
            }
        }
    }

    /// A number of the line table with its sign in the lowest bit.
    pub(crate) fn signed(&mut self) -> Option<i32> {
        let value = self.unsigned()?;
        let half = (value >> 1).cast_signed();
        Some(if value & 1 == 0 { half } else { -half })
    }

    /// A number of the exception table; `first`: marked as the start of an entry.
    pub(crate) fn big_endian(&mut self, first: bool) -> Option<u32> {
        let mut byte = self.next()?;
        if (byte & 0x80 != 0) != first {
            return None;
        }
        let mut value = u32::from(byte & 63);
        while byte & 64 != 0 {
            byte = self.next()?;
            if byte & 0x80 != 0 || value >> 26 != 0 {
                return None;
            }
            value = value << 6 | u32::from(byte & 63);
        }
        Some(value)
    }
}

pub(crate) fn push_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 64 {
        out.push(64 | (value & 63) as u8);
        value >>= 6;
    }
    out.push(value as u8);
}

pub(crate) fn push_signed(out: &mut Vec<u8>, value: i64) {
    push_unsigned(out, value.unsigned_abs() << 1 | u64::from(value < 0));
}

/// Writes a number of the exception table.
pub(crate) fn push_big_endian(out: &mut Vec<u8>, value: u32, first: bool) {
    let at = out.len();
    let mut shift = (0_u32..6)
        .rev()
        .map(|digit| digit * 6)
        .find(|shift| *shift == 0 || value >> shift != 0);
    while let Some(bits) = shift {
        let more = if bits == 0 { 0 } else { 64 };
        out.push(more | (value >> bits & 63) as u8);
        shift = bits.checked_sub(6);
    }
    if first {
        out[at] |= 0x80;
    }
}
