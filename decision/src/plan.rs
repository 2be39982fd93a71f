//! In which order questions are asked, and whether a conditional one is asked at all.
//!
//! Pure: the server runs the stages and asks `should_ask` between them. References are checked by `Schema::validate`, which
//! calls `check_references`. Linear in questions plus references, and without recursion.

use std::collections::{HashMap, HashSet};

use crate::answer::Answers;
use crate::diagnostics::Skipped;
use crate::error::{Place, SchemaError};
use crate::question::Question;
use crate::schema::Schema;
use crate::suggestion::did_you_mean;

/// The stages of a decision: indices into `schema.questions`, every question in the first stage after all those it waits for.
///
/// Only asked questions are in it (`schema.ask`). The order of the source holds within a stage and does not matter for the
/// staging itself: whether a question may refer to a later one is a rule of the route, see `Schema::validate`.
/// Errors: a circle, an unknown id, or an asked question whose dependency is not asked.
pub fn stages(schema: &Schema) -> Result<Vec<Vec<usize>>, SchemaError> {
    let index_of = index_of(schema);
    let asked = asked(schema, &index_of)?;
    let mut needs = needs(schema, &index_of)?;
    for (index, question) in schema.questions.iter().enumerate() {
        if !asked[index] {
            needs[index].clear();
        } else if let Some((key, id)) = references(question).find(|(_, id)| !asked[index_of[id]]) {
            return Err(SchemaError::NotAsked {
                place: Place::Question(question.id.clone()),
                key,
                needs: id.to_owned(),
            });
        }
    }
    let mut stages = staged(schema, &needs)?;
    for stage in &mut stages {
        stage.retain(|&index| asked[index]);
    }
    stages.retain(|stage| !stage.is_empty());
    Ok(stages)
}

/// Whether the conditions of a question hold, given the answers of earlier stages.
///
/// All of them must. A condition on a question that was skipped or not asked does not hold.
pub fn should_ask(question: &Question, answers: &Answers) -> Result<(), Skipped> {
    for (because, wanted) in &question.ask_if {
        let was = answers.get(because).and_then(Option::as_ref).map(|answer| answer.name().to_owned());
        if !was.as_ref().is_some_and(|was| wanted.contains(was)) {
            return Err(Skipped { because: because.clone(), was, wanted: wanted.clone() });
        }
    }
    Ok(())
}

/// Checks `depends_on`, `ask_if` and `ask` of the whole schema, asked or not. With `in_order`, a question may refer only to
/// earlier ones.
pub(crate) fn check_references(schema: &Schema, in_order: bool) -> Result<(), SchemaError> {
    let index_of = index_of(schema);
    staged(schema, &needs(schema, &index_of)?)?;
    if in_order {
        for (index, question) in schema.questions.iter().enumerate() {
            if let Some((key, id)) = references(question).find(|(_, id)| index_of[id] > index) {
                let place = Place::Question(question.id.clone());
                return Err(SchemaError::ForwardReference { place, key, id: id.to_owned() });
            }
        }
    }
    stages(schema).map(|_| ())
}

/// The questions that one waits for, with the key that says so.
fn references(question: &Question) -> impl Iterator<Item = (&'static str, &str)> {
    let depends_on = question.depends_on.iter().map(|id| ("depends_on", id.as_str()));
    depends_on.chain(question.ask_if.keys().map(|id| ("ask_if", id.as_str())))
}

fn index_of(schema: &Schema) -> HashMap<&str, usize> {
    schema.questions.iter().enumerate().map(|(index, question)| (question.id.as_str(), index)).collect()
}

/// Which questions are asked. `[questions]`
fn asked(schema: &Schema, index_of: &HashMap<&str, usize>) -> Result<Vec<bool>, SchemaError> {
    let Some(ids) = &schema.ask else { return Ok(vec![true; schema.questions.len()]) };
    let mut asked = vec![false; schema.questions.len()];
    for id in ids {
        let index = index_of.get(id.as_str()).ok_or_else(|| unknown(schema, Place::Schema, "ask", id))?;
        asked[*index] = true;
    }
    Ok(asked)
}

/// For every question the indices it waits for, each once. `[questions][..]`
fn needs(schema: &Schema, index_of: &HashMap<&str, usize>) -> Result<Vec<Vec<usize>>, SchemaError> {
    let of_question = |question: &Question| {
        let mut seen = HashSet::new();
        let mut needs = Vec::new();
        for (key, id) in references(question) {
            let place = || Place::Question(question.id.clone());
            let index = *index_of.get(id).ok_or_else(|| unknown(schema, place(), key, id))?;
            if seen.insert(index) {
                needs.push(index);
            }
        }
        Ok(needs)
    };
    schema.questions.iter().map(of_question).collect()
}

fn unknown(schema: &Schema, place: Place, key: &'static str, id: &str) -> SchemaError {
    let ids = schema.questions.iter().map(|question| question.id.as_str());
    let hint = did_you_mean(id, ids, "the questions are");
    SchemaError::UnknownQuestion { place, key, id: id.to_owned(), hint }
}

/// Sorts questions into stages by taking away, round after round, those that wait for nothing that is left.
fn staged(schema: &Schema, needs: &[Vec<usize>]) -> Result<Vec<Vec<usize>>, SchemaError> {
    let mut waiting: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut waited_for_by: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    for (index, needs) in needs.iter().enumerate() {
        for &needed in needs {
            waited_for_by[needed].push(index);
        }
    }
    let mut stages = Vec::new();
    let mut stage: Vec<usize> = (0..needs.len()).filter(|&index| waiting[index] == 0).collect();
    while !stage.is_empty() {
        let mut next = Vec::new();
        for &index in &stage {
            for &freed in &waited_for_by[index] {
                waiting[freed] -= 1;
                if waiting[freed] == 0 {
                    next.push(freed);
                }
            }
        }
        next.sort_unstable();
        stages.push(std::mem::replace(&mut stage, next));
    }
    match waiting.iter().position(|&left| left > 0) {
        None => Ok(stages),
        Some(start) => Err(circle(schema, needs, &waiting, start)),
    }
}

/// Follows what is left from one question to the next until one comes again.
fn circle(schema: &Schema, needs: &[Vec<usize>], waiting: &[usize], start: usize) -> SchemaError {
    let mut path = vec![start];
    let mut position: HashMap<usize, usize> = HashMap::from([(start, 0)]);
    let mut at = start;
    // Whoever still waits, waits for one that still waits.
    while let Some(&next) = needs[at].iter().find(|&&needed| waiting[needed] > 0) {
        if let Some(&first) = position.get(&next) {
            path.drain(..first);
            path.push(next);
            break;
        }
        position.insert(next, path.len());
        path.push(next);
        at = next;
    }
    SchemaError::Cycle { ids: path.into_iter().map(|index| schema.questions[index].id.clone()).collect() }
}
