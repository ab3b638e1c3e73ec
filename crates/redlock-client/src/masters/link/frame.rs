//! Finds the ends of values in a stream of RESP, byte by byte, without the values themselves.
//!
//! Each byte is read once, so a value costs the same however it is split. A value that exceeds its limits is refused
//! before its bytes are read.

use thiserror::Error;

/// The deepest nesting of arrays and maps. The replies of the scripts have two levels.
const DEPTH: usize = 8;
/// The longest line: an error of a script with its reason, or a number.
const LINE: usize = 4 * 1024;
/// The digits of the greatest length.
const DIGITS: u8 = 19;

/// The reason why the bytes of a master are not read further.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum FrameExcess {
    #[error("a {of} of more than {limit} bytes")]
    Bytes { of: &'static str, limit: usize },
    #[error("a {of} of more than {limit} values")]
    Values { of: &'static str, limit: usize },
    #[error("a line of more than {LINE} bytes")]
    Line,
    #[error("a value nested deeper than {DEPTH} levels")]
    Depth,
    #[error("bytes that are not RESP: {0} expected")]
    Malformed(&'static str),
    #[error("a reply to no request")]
    NotRequested,
    #[error("more than {0} messages in one second")]
    Messages(u32),
}

/// The limits of one value.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameLimits {
    /// The name of the value in an error.
    pub(super) of: &'static str,
    pub(super) bytes: usize,
    /// Including the values inside of it.
    pub(super) values: usize,
}

impl FrameLimits {
    /// The limits of what this process writes.
    pub(super) const NONE: Self = Self {
        of: "request",
        bytes: usize::MAX,
        values: usize::MAX,
    };
}

/// The effect of a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prefix {
    /// Bytes follow. Only some types can be null.
    Bulk { nullable: bool },
    /// As many values follow, times `each`, and `more`.
    Values {
        each: usize,
        more: usize,
        nullable: bool,
    },
}

/// A length, as far as it was read.
#[derive(Clone, Copy, Debug)]
struct Length {
    prefix: Prefix,
    number: usize,
    negative: bool,
    digits: u8,
    carriage_return: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The next byte is the type of a value.
    Type,
    Line {
        length: usize,
        carriage_return: bool,
    },
    Length(Length),
    Bulk {
        left: usize,
    },
    /// Expects the rest of the line end after a bulk.
    BulkEnd {
        carriage_return: bool,
    },
}

/// The place of a reader within a value.
#[derive(Clone, Debug)]
pub(super) struct Scanner {
    state: State,
    /// The values that are left in each open array.
    open: [usize; DEPTH],
    depth: usize,
    /// The bytes and values of this value so far.
    bytes: usize,
    values: usize,
    /// The number of values in the outermost array.
    items: usize,
}

impl Scanner {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Type,
            open: [0; DEPTH],
            depth: 0,
            bytes: 0,
            values: 0,
            items: 0,
        }
    }

    /// Returns the number of values in the outermost array of the last value.
    pub(super) const fn items(&self) -> usize {
        self.items
    }

    /// Reads bytes up to the end of a value. Returns the number of its bytes if it ends here.
    pub(super) fn read(&mut self, bytes: &[u8], limits: &FrameLimits) -> Result<Option<usize>, FrameExcess> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let mut taken = 1;
            let ended = match self.state {
                State::Type => {
                    self.begin(byte, limits)?;
                    false
                }
                State::Line {
                    length,
                    carriage_return,
                } => self.line(byte, length, carriage_return)?,
                State::Length(length) => self.length(byte, length, limits)?,
                State::Bulk { left } => {
                    taken = left.min(bytes.len() - at);
                    self.state = match left - taken {
                        0 => State::BulkEnd {
                            carriage_return: false,
                        },
                        left => State::Bulk { left },
                    };
                    false
                }
                State::BulkEnd { carriage_return } => self.bulk_end(byte, carriage_return)?,
            };
            at += taken;
            self.bytes = self.bytes.saturating_add(taken);
            if self.bytes > limits.bytes {
                return Err(too_long(limits));
            }
            if ended && self.close() {
                (self.bytes, self.values) = (0, 0);
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn begin(&mut self, kind: u8, limits: &FrameLimits) -> Result<(), FrameExcess> {
        if self.depth == 0 {
            (self.bytes, self.values, self.items) = (0, 1, 0);
            if limits.values == 0 {
                return Err(too_many(limits));
            }
        }
        let array = |each, more, nullable| Some(Prefix::Values { each, more, nullable });
        let prefix = match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => None,
            b'$' => Some(Prefix::Bulk { nullable: true }),
            b'=' | b'!' => Some(Prefix::Bulk { nullable: false }),
            b'*' | b'~' => array(1, 0, true),
            b'>' => array(1, 0, false),
            b'%' => array(2, 0, false),
            // Attributes, and the value that they describe.
            b'|' => array(2, 1, false),
            _ => return Err(FrameExcess::Malformed("the type of a value")),
        };
        self.state = match prefix {
            None => State::Line {
                length: 0,
                carriage_return: false,
            },
            Some(prefix) => State::Length(Length {
                prefix,
                number: 0,
                negative: false,
                digits: 0,
                carriage_return: false,
            }),
        };
        Ok(())
    }

    fn line(&mut self, byte: u8, length: usize, carriage_return: bool) -> Result<bool, FrameExcess> {
        if byte == b'\n' && carriage_return {
            return Ok(true);
        }
        if length == LINE {
            return Err(FrameExcess::Line);
        }
        self.state = State::Line {
            length: length + 1,
            carriage_return: byte == b'\r',
        };
        Ok(false)
    }

    fn length(&mut self, byte: u8, mut length: Length, limits: &FrameLimits) -> Result<bool, FrameExcess> {
        match (byte, length.carriage_return) {
            (b'0'..=b'9', false) if length.digits < DIGITS => {
                length.digits += 1;
                length.number = length
                    .number
                    .saturating_mul(10)
                    .saturating_add(usize::from(byte - b'0'));
            }
            (b'-', false) if length.digits == 0 && !length.negative => length.negative = true,
            (b'\r', false) if length.digits > 0 => length.carriage_return = true,
            (b'\n', true) => {
                let number = (!length.negative).then_some(length.number);
                return self.sized(length.prefix, number, limits);
            }
            _ => return Err(FrameExcess::Malformed("a length")),
        }
        self.state = State::Length(length);
        Ok(false)
    }

    /// Begins the content of a value of this length; `None` stands for a negative one. Returns true if it has no content.
    fn sized(
        &mut self,
        prefix: Prefix,
        number: Option<usize>,
        limits: &FrameLimits,
    ) -> Result<bool, FrameExcess> {
        match (prefix, number) {
            (Prefix::Bulk { nullable: true } | Prefix::Values { nullable: true, .. }, None) => Ok(true),
            (Prefix::Bulk { nullable: false } | Prefix::Values { nullable: false, .. }, None) => {
                Err(FrameExcess::Malformed("a length of at least zero"))
            }
            (Prefix::Bulk { .. }, Some(length)) => {
                if self.bytes.saturating_add(length) > limits.bytes {
                    return Err(too_long(limits));
                }
                self.state = match length {
                    0 => State::BulkEnd {
                        carriage_return: false,
                    },
                    left => State::Bulk { left },
                };
                Ok(false)
            }
            (Prefix::Values { each, more, .. }, Some(count)) => {
                let count = count.saturating_mul(each).saturating_add(more);
                self.values = self.values.saturating_add(count);
                if self.values > limits.values {
                    return Err(too_many(limits));
                }
                if self.depth == 0 {
                    self.items = count;
                }
                if count == 0 {
                    return Ok(true);
                }
                *self.open.get_mut(self.depth).ok_or(FrameExcess::Depth)? = count;
                self.depth += 1;
                self.state = State::Type;
                Ok(false)
            }
        }
    }

    fn bulk_end(&mut self, byte: u8, carriage_return: bool) -> Result<bool, FrameExcess> {
        match (byte, carriage_return) {
            (b'\r', false) => {
                self.state = State::BulkEnd {
                    carriage_return: true,
                };
                Ok(false)
            }
            (b'\n', true) => Ok(true),
            _ => Err(FrameExcess::Malformed("the end of a line after a text")),
        }
    }

    /// Ends a value, and the arrays whose last value it is. Returns true if no array is left.
    fn close(&mut self) -> bool {
        self.state = State::Type;
        while let Some(open) = self.depth.checked_sub(1) {
            self.open[open] -= 1;
            if self.open[open] > 0 {
                return false;
            }
            self.depth = open;
        }
        true
    }
}

const fn too_long(limits: &FrameLimits) -> FrameExcess {
    FrameExcess::Bytes {
        of: limits.of,
        limit: limits.bytes,
    }
}

const fn too_many(limits: &FrameLimits) -> FrameExcess {
    FrameExcess::Values {
        of: limits.of,
        limit: limits.values,
    }
}

#[cfg(test)]
pub(super) mod tests;
