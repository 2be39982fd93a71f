//! The distribution of one answer, from the tokens at the place where it was written.

use decision::Question;
use serde::Deserialize;

use super::scan::Found;

/// One written token, with the likeliest at its place.
#[derive(Debug, Deserialize)]
pub(super) struct Token {
    pub(super) token: String,
    logprob: f64,
    #[serde(default)]
    top_logprobs: Vec<Candidate>,
}

#[derive(Debug, Deserialize)]
struct Candidate {
    token: String,
    logprob: f64,
}

/// A probability of 1, with what servers make of it in single precision.
const MOST_LOGPROB: f64 = 1e-4;

/// What the tokens at one place say about one question.
#[derive(Debug)]
pub(super) struct Slot {
    /// In the order of the answers, sum 1. An answer that is not among the listed tokens has the most that it can have.
    pub(super) probabilities: Vec<f64>,
    /// What the answers that are listed had together.
    pub(super) mass: f64,
    /// Index of the answer that was written.
    chosen: usize,
}

impl Slot {
    /// Index of the most probable answer; of equals the one that was written, else the first.
    pub(super) fn winner(&self) -> usize {
        let p = &self.probabilities;
        let best = (0..p.len()).rev().max_by(|a, b| p[*a].total_cmp(&p[*b])).unwrap_or(0);
        if p[best] > p[self.chosen] { best } else { self.chosen }
    }
}

/// Reads the place of `found`. The value is a label, or the name of an answer from a server that ignores the schema.
pub(super) fn read(question: &Question, tokens: &[Token], found: &Found) -> Result<Slot, String> {
    let labels = question.labels();
    let names: Vec<String> = question.answer_names().into_iter().map(str::to_owned).collect();
    let written = [labels, names]
        .into_iter()
        .find_map(|spelling| position(&spelling, &found.value).map(|chosen| (spelling, chosen)));
    let Some((spelling, chosen)) = written else { return Err(found.value.clone()) };
    let Some((token, offset)) = token_at(tokens, found.start) else { return Err(found.value.clone()) };
    // What stands before the value in its own token, such as a quote or a space.
    let before = &token.token[..found.start - offset];
    if token.top_logprobs.is_empty() {
        return Err(format!("{} (the server lists no other tokens at its place)", found.value));
    }
    let possible = |logprob: f64| logprob <= MOST_LOGPROB;
    if !(possible(token.logprob) && token.top_logprobs.iter().all(|candidate| possible(candidate.logprob))) {
        return Err(format!("{} (with a log-probability above 0)", found.value));
    }
    let mut weights = vec![0.0; spelling.len()];
    let mut seen = vec![false; spelling.len()];
    let mut accounted = 0.0;
    let listed = token.top_logprobs.iter().map(|candidate| (candidate.token.as_str(), candidate.logprob));
    let own = (token.token.as_str(), token.logprob);
    let missing = token.top_logprobs.iter().all(|candidate| candidate.token != token.token);
    for (text, logprob) in listed.chain(missing.then_some(own)) {
        let p = logprob.exp();
        accounted += p;
        let Some(rest) = text.strip_prefix(before) else { continue };
        let meant = matching(&spelling, rest);
        meant.iter().for_each(|index| seen[*index] = true);
        if meant.contains(&chosen) && meant.len() > 1 {
            // A token that several answers begin with counts for the one that was written.
            weights[chosen] += p;
        } else {
            meant.iter().for_each(|index| weights[*index] += p / meant.len() as f64);
        }
    }
    let mass: f64 = weights.iter().sum();
    if !(mass > 0.0 && mass.is_finite()) {
        return Err(format!("{} (no probability of it is given)", found.value));
    }
    // A label that is not listed may have as much as the least token that is, within what the listed ones leave, and is no more
    // likely than the one that was written.
    let least =
        token.top_logprobs.iter().map(|candidate| candidate.logprob.exp()).fold(weights[chosen], f64::min);
    let unseen = seen.iter().filter(|seen| !**seen).count() as f64;
    let most = f64::min(least, (1.0 - accounted).max(0.0) / unseen.max(1.0));
    weights.iter_mut().zip(&seen).filter(|(_, seen)| !**seen).for_each(|(weight, _)| *weight = most);
    let sum: f64 = weights.iter().sum();
    let probabilities = weights.iter().map(|weight| weight / sum).collect();
    Ok(Slot { probabilities, mass: mass.min(1.0), chosen })
}

/// The token that covers this byte, and the byte at which it begins.
fn token_at(tokens: &[Token], byte: usize) -> Option<(&Token, usize)> {
    let mut offset = 0;
    for token in tokens {
        let end = offset + token.token.len();
        if byte < end {
            return token.token.is_char_boundary(byte - offset).then_some((token, offset));
        }
        offset = end;
    }
    None
}

/// Answers that a token may be the beginning of: the one it spells out, or all that begin with it.
fn matching(spelling: &[String], token: &str) -> Vec<usize> {
    let part = token.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '"' | ',' | '}'));
    if part.is_empty() {
        return Vec::new();
    }
    match position(spelling, part) {
        Some(index) => vec![index],
        // A closing quote behind it says that it is no beginning.
        None if part.len() < token.len() => Vec::new(),
        None => (0..spelling.len()).filter(|index| begins(&spelling[*index], part)).collect(),
    }
}

fn position(spelling: &[String], text: &str) -> Option<usize> {
    let exact = spelling.iter().position(|name| name == text);
    exact.or_else(|| spelling.iter().position(|name| name.eq_ignore_ascii_case(text)))
}

fn begins(name: &str, part: &str) -> bool {
    name.get(..part.len()).is_some_and(|head| head.eq_ignore_ascii_case(part))
}
