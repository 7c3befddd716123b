//! Fuzzing without libFuzzer: `corsac-fuzz TARGET SECONDS [SEED]`.
//!
//! Runs a fuzz target on made-up bytes until the time is over: random bytes, and for the parser
//! mostly texts of graphs with a few changes. A failure prints the seed that leads to it at once.

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
    eprintln!("usage: corsac-fuzz parser|edits SECONDS [SEED]");
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
