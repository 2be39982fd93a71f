//! What was measured, by whom and with what: the lines above the tables.

use super::super::receipt::Receipt;
use crate::foreign::visible;

pub(super) fn facts(receipt: &Receipt) -> Vec<(String, String)> {
    let origin = &receipt.origin;
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    let part = |key: &str| origin.server.get(key).and_then(serde_json::Value::as_str).map(visible);
    let server = [part("version"), part("git_revision").map(|text| format!("git {text}")), part("device")];
    let server: Vec<String> = server.into_iter().flatten().collect();
    let mut facts = vec![
        ("Server".to_owned(), visible(&origin.target_url)),
        ("Model".to_owned(), origin.target_model.as_deref().map_or("not told".to_owned(), visible)),
    ];
    if !server.is_empty() {
        facts.push(("Server version".to_owned(), server.join(", ")));
    }
    let dataset = &origin.dataset;
    facts.push((
        "Dataset".to_owned(),
        format!("{} ({} rows, sha256 {}…)", visible(&dataset.path), dataset.rows, short(&dataset.sha256)),
    ));
    let templates: Vec<String> =
        origin.templates.iter().map(|(name, hash)| format!("{} ({}…)", visible(name), short(hash))).collect();
    if !templates.is_empty() {
        facts.push(("Templates".to_owned(), templates.join(", ")));
    }
    let seed = origin.seed.map_or("the server's own".to_owned(), |seed| seed.to_string());
    let settings: Vec<String> =
        origin.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    facts.push((
        "Settings".to_owned(),
        format!("seed {seed}, workers {}, {}", origin.workers, settings.join(", ")),
    ));
    facts.push((
        "Warm-up".to_owned(),
        match &origin.warm_up {
            Some(warm_up) => format!(
                "{} decision, not counted{}",
                warm_up.decisions,
                warm_up
                    .error
                    .as_ref()
                    .map(|error| format!("; it failed: {}", visible(error)))
                    .unwrap_or_default()
            ),
            None => "none".to_owned(),
        },
    ));
    let planned = receipt.planned_cases.map(|planned| format!(" of {planned} planned")).unwrap_or_default();
    facts.push((
        "Run".to_owned(),
        format!(
            "{}, {} cases{planned}, {:.1} s, dgem {} (git {})",
            origin.timestamp,
            receipt.cases.len(),
            receipt.total_elapsed_sec,
            origin.dgem_version,
            origin.dgem_git_revision
        ),
    ));
    if let Some(stopped) = receipt.unfinished() {
        facts.push(("STOPPED".to_owned(), format!("{stopped}; every figure is of the measured cases only")));
    }
    facts
}
