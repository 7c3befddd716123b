//! Fuzzing without libFuzzer: `corsac-fuzz TARGET SECONDS [SEED]`.
//!
//! Runs a fuzz target on made-up bytes until the time is over: random bytes, and for the parser
//! mostly texts of graphs with a few changes, for models mostly a model file with a few changes,
//! for code mostly opcodes with small arguments. A failure prints the seed that leads to it at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corsac_testkit::bytes::Bytes;
use corsac_testkit::fuzz;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (target, seconds) = match &arguments[..] {
        [target, seconds, ..] => (target.as_str(), seconds.parse::<u64>()),
        _ => return usage(),
    };
    let run: fn(&mut Random) = match target {
        "parser" => |random| fuzz::parser(&text(random)),
        "model" => |random| fuzz::model_file(&model(random)),
        "code" => |random| fuzz::code_object(&code(random)),
        "edits" => |random| {
            let len = random.below(1_000);
            fuzz::edit_sequence(&random.bytes(len));
        },
        _ => return usage(),
    };
    let Ok(seconds) = seconds else { return usage() };
    let only = arguments.get(2).map(|seed| seed.parse::<u64>());
    let first = match only {
        Some(Ok(seed)) => seed,
        Some(Err(_)) => return usage(),
        None => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |now| now.as_secs() << 24),
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seed = first;
    loop {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut Random::new(seed))));
        if outcome.is_err() {
            eprintln!("corsac-fuzz {target} 0 {seed}   # runs this case again");
            return ExitCode::FAILURE;
        }
        seed += 1;
        if Instant::now() >= end {
            break;
        }
    }
    println!(
        "{target}: {} cases in {seconds} s, none failed",
        seed - first
    );
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: corsac-fuzz parser|edits|model|code SECONDS [SEED]");
    ExitCode::from(2)
}

/// Random bytes, or the text of a random graph with changes.
fn text(random: &mut Random) -> Vec<u8> {
    if random.below(8) == 0 {
        let len = random.below(200);
        return random.bytes(len);
    }
    let len = random.below(400);
    let graph = Bytes::new(&random.bytes(len)).graph(8).build();
    let text = if random.below(2) == 0 {
        graph.to_lossless()
    } else {
        graph.to_string()
    };
    let mut text = text.into_bytes();
    for _ in 0..random.below(6) {
        random.change(&mut text);
    }
    text
}

/// A version, flags, tables, and code: mostly opcodes with small arguments and their cache units.
fn code(random: &mut Random) -> Vec<u8> {
    let number = random.below(4);
    let mut bytes = vec![number as u8, random.next() as u8];
    let (exceptions, lines) = (4 * random.below(4), random.below(8));
    bytes.extend([exceptions as u8, lines as u8]);
    for entry in 0..exceptions {
        let first = if entry % 4 == 0 { 0x80 } else { 0 };
        bytes.push(first | random.below(12) as u8);
    }
    bytes.extend(random.bytes(lines).iter().map(|byte| byte | 0x80));
    let version = corsac_bytecode::Version::ALL[number];
    let ops: Vec<_> = version.ops().collect();
    for _ in 0..random.below(60) {
        let op = ops[random.below(ops.len())];
        let wide = random.below(6) == 0;
        let arg = if wide {
            random.next() as u8
        } else {
            random.below(8) as u8
        };
        bytes.extend([op.code, arg]);
        bytes.resize(bytes.len() + 2 * usize::from(op.caches), 0);
    }
    if random.below(4) == 0 {
        random.change(&mut bytes);
    }
    bytes
}

/// Random bytes, or a model file with changes of bytes, or of words in its header.
fn model(random: &mut Random) -> Vec<u8> {
    if random.below(16) == 0 {
        let len = random.below(400);
        return random.bytes(len);
    }
    let mut file = fuzz::small_model();
    if random.below(4) == 0 {
        for _ in 0..=random.below(4) {
            random.change(&mut file);
        }
        return file;
    }
    // The length of the header is put right, so that what is behind it is looked at.
    let len = u64::from_le_bytes(std::array::from_fn(|at| file[at])) as usize;
    let mut header = String::from_utf8_lossy(&file[8..8 + len]).into_owned();
    for _ in 0..=random.below(3) {
        header = with_other_word(random, &header);
    }
    let mut changed = (header.len() as u64).to_le_bytes().to_vec();
    changed.extend_from_slice(header.as_bytes());
    changed.extend_from_slice(&file[8 + len..]);
    changed
}

/// `text` with one of its words replaced by another one, or by a number.
fn with_other_word(random: &mut Random, text: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '%' | '-');
    let mut words: Vec<String> = text
        .split_inclusive(|c| !is_word(c))
        .map(str::to_owned)
        .collect();
    let at = random.below(words.len());
    let new = match random.below(4) {
        0 => WORDS[random.below(WORDS.len())].to_owned(),
        1 => (random.below(9) as i64 - 3).to_string(),
        2 => random.next().cast_signed().to_string(),
        _ => {
            let other = &words[random.below(words.len())];
            other.trim_end_matches(|c| !is_word(c)).to_owned()
        }
    };
    let end: String = words[at].chars().filter(|&c| !is_word(c)).collect();
    words[at] = new + &end;
    words.concat()
}

/// Words that change what a graph asks for.
const WORDS: [&str; 24] = [
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "4294967296",
    "None",
    "True",
    "nan",
    "1e308",
    "()",
    "range(0, 9223372036854775807)",
    "torch.int64",
    "int64",
    "bool",
    "expand",
    "repeat",
    "chunk",
    "unbind",
    "reshape",
    "topk",
    "cumsum",
    "embedding",
    "index_select",
    "torch.einsum",
    "torch.nn.functional.pad",
];

/// Pieces that the text forms are made of.
const PIECES: [&str; 24] = [
    "%",
    "x",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ", ",
    ": ",
    "'",
    "\\x",
    "\n",
    "@0",
    "$1",
    "= ",
    "graph():",
    "slice(",
    "return ",
    "[num_users=",
    "\u{20ac}",
    "nan",
    "-",
    "](args = (",
];

/// Splitmix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        // The remainder of a number below 2^64 by a small one is nearly even.
        (self.next() % bound.max(1) as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Takes a part out, doubles it, or puts something in.
    fn change(&mut self, text: &mut Vec<u8>) {
        let at = self.below(text.len() + 1);
        let end = (at + self.below(12)).min(text.len());
        match self.below(5) {
            0 => {
                text.drain(at..end);
            }
            1 => {
                let part = text[at..end].to_vec();
                text.splice(at..at, part);
            }
            2 => {
                let byte = self.next() as u8;
                text.splice(at..at, [byte]);
            }
            3 if at < text.len() => text[at] = self.next() as u8,
            _ => {
                let piece = PIECES[self.below(PIECES.len())];
                text.splice(at..at, piece.bytes());
            }
        }
    }
}
