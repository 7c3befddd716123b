//! Stack effects of instructions.

use crate::kinds::Kinds;

/// Number of slots that a word of a signature stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Count {
    One,
    Arg,
    TwiceArg,
    LowByte,
    HighBytes,
    Bit(u8),
    Slice,
}

impl Count {
    fn of(self, arg: u32) -> i64 {
        let arg = i64::from(arg);
        match self {
            Self::One => 1,
            Self::Arg => arg,
            Self::TwiceArg => 2 * arg,
            Self::LowByte => arg & 0xff,
            Self::HighBytes => arg >> 8,
            Self::Bit(bit) => arg >> bit & 1,
            Self::Slice => 2 + i64::from(arg == 3),
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "n" => Self::Arg,
            "2n" => Self::TwiceArg,
            "lo" => Self::LowByte,
            "hi" => Self::HighBytes,
            "slice" => Self::Slice,
            "bit0" => Self::Bit(0),
            "bit1" => Self::Bit(1),
            "bit2" => Self::Bit(2),
            "bit3" => Self::Bit(3),
            _ => return None,
        })
    }
}

/// Slots that are taken from the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input {
    pub(crate) accepts: Kinds,
    count: Count,
}

impl Input {
    pub(crate) fn count(&self, arg: u32) -> i64 {
        self.count.of(arg)
    }
}

/// Slots that are left on the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Output {
    /// New ones.
    New(Kinds, OutputCount),
    /// The input with this number, counted from the lowest.
    Same(usize),
}

/// Number of slots of an [`Output`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputCount(Count);

impl OutputCount {
    pub(crate) fn of(self, arg: u32) -> i64 {
        self.0.of(arg)
    }
}

/// The stack effect of an instruction, lowest slot first.
#[derive(Debug)]
pub(crate) struct Signature {
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<Output>,
    /// The slots left where the instruction jumps, if they differ.
    pub(crate) jump_outputs: Option<Vec<Output>>,
    /// The kinds required in the slot as many places below the inputs as the argument.
    pub(crate) deep: Option<Kinds>,
    pub(crate) movement: Option<Movement>,
}

/// The instructions that move slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Movement {
    Copy,
    Swap,
}

impl Signature {
    /// # Panics
    /// If the text of the table is wrong.
    pub(crate) fn parse(text: &str) -> Self {
        let bad = || -> ! { panic!("the signature {text:?} of the opcode table") };
        let Some((inputs, rest)) = text.split_once("--") else {
            bad()
        };
        let (outputs, jump) = match rest.split_once(" |") {
            Some((outputs, jump)) => (outputs, Some(jump)),
            None => (rest, None),
        };
        let mut signature = Self {
            inputs: Vec::new(),
            outputs: Vec::new(),
            jump_outputs: None,
            deep: None,
            movement: None,
        };
        for word in inputs.split_whitespace() {
            let (kind, count) = counted(word);
            let accepts = |kind| Kinds::accepted(kind).unwrap_or_else(|| bad());
            match kind.strip_suffix("@n") {
                Some(deep) => signature.deep = Some(accepts(deep)),
                None => signature.inputs.push(Input {
                    accepts: accepts(kind),
                    count,
                }),
            }
        }
        let parse_outputs = |words: &str| -> Vec<Output> {
            let parse = |word: &str| match word.strip_prefix('=') {
                Some(number) => Output::Same(number.parse().unwrap_or_else(|_| bad())),
                None => {
                    let (kind, count) = counted(word);
                    let kinds = Kinds::pushed(kind).unwrap_or_else(|| bad());
                    Output::New(kinds, OutputCount(count))
                }
            };
            words.split_whitespace().map(parse).collect()
        };
        match outputs.trim() {
            "copy" => signature.movement = Some(Movement::Copy),
            "swap" => signature.movement = Some(Movement::Swap),
            words => signature.outputs = parse_outputs(words),
        }
        signature.jump_outputs =
            jump.map(|words| parse_outputs(words.trim().trim_start_matches("--")));
        signature
    }

    /// Number of slots taken.
    pub(crate) fn taken(&self, arg: u32) -> i64 {
        self.inputs.iter().map(|input| input.count(arg)).sum()
    }

    /// The slots left on one of the two paths.
    pub(crate) fn left(&self, jump: bool) -> &[Output] {
        match &self.jump_outputs {
            Some(outputs) if jump => outputs,
            _ => &self.outputs,
        }
    }

    /// Growth of the stack, in slots.
    pub(crate) fn effect(&self, arg: u32, jump: bool) -> i64 {
        match self.movement {
            Some(Movement::Copy) => return 1,
            Some(Movement::Swap) => return 0,
            None => {}
        }
        let count = |output: &Output| match output {
            Output::New(_, count) => count.of(arg),
            Output::Same(_) => 1,
        };
        self.left(jump).iter().map(count).sum::<i64>() - self.taken(arg)
    }

    /// Number of slots that are gone when the instruction raises: those it takes, but for the
    /// lowest ones that it leaves as they are.
    pub(crate) fn gone(&self, arg: u32) -> i64 {
        let kept = self.outputs.iter().enumerate();
        let kept = kept.take_while(|(at, output)| matches!(output, Output::Same(it) if it == at));
        self.taken(arg) - kept.count() as i64
    }

    /// Number of slots that the stack must have.
    pub(crate) fn needed(&self, arg: u32) -> i64 {
        match self.movement {
            Some(_) => i64::from(arg).max(1),
            None if self.deep.is_some() => self.taken(arg) + i64::from(arg).max(1),
            None => self.taken(arg),
        }
    }
}

fn counted(word: &str) -> (&str, Count) {
    match word.split_once('*') {
        None => (word, Count::One),
        Some((kind, count)) => {
            let count = Count::parse(count);
            (
                kind,
                count.unwrap_or_else(|| panic!("the count of {word:?} in the opcode table")),
            )
        }
    }
}
