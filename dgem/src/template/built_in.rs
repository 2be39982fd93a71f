//! The policies that are part of the program: the files of the top folder `templates/`, so that an installed `dgem` has them
//! wherever it runs. `catalogue` looks here last.

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../templates/", $name, ".json.tmpl")))),*]
    };
}

/// Name → source, sorted by name, those of the top folder first.
pub(super) const ALL: &[(&str, &str)] = built_in![
    "agent_router",
    "code_review",
    "contract_audit",
    "intent_banking77",
    "intent_clinc150",
    "intent_tiebreak",
    "jevbench_generic",
    "secops_conditional_dag",
    "security_incident",
    "support_triage",
    "taxonomy_discovery",
    "tn_disambiguation",
    "calibration/agent_step_drift",
    "calibration/agent_step_hijack",
    "calibration/banking77_intent",
    "calibration/boolq_answer",
    "calibration/chaos_nli",
    "calibration/civil_comments_toxicity",
    "calibration/civil_comments_toxicity_rate",
    "calibration/clinc_oos_intent",
    "calibration/go_emotions_emotion",
    "calibration/grounding_claim_check",
    "calibration/ms_marco_relevance",
    "calibration/prompt_injection",
    "calibration/sst5_sentiment",
    "calibration/yelp_stars",
    "docs/docs_claim_evidence",
    "docs/docs_diataxis",
    "docs/docs_style_audit",
    "multimodal/bbox_localization",
    "multimodal/bbox_multi_object_detr",
    "multimodal/bbox_multi_object_set",
    "multimodal/call_quality_audio",
    "multimodal/kyc_document_audit",
    "multimodal/pcb_defect_triage",
    "multimodal/ui_design_review",
    "multimodal/vision_aspects",
    "multimodal/vision_aspects_generic",
    "multimodal/workplace_hazard_video",
    "rerank/listwise_decision_rerank",
    "rerank/pointwise_rerank",
];

/// The texts for `dgem ask`, by their names with `.txt`.
pub(super) const TEXTS: &[(&str, &str)] =
    &[("ask_summary.txt", include_str!("../../../templates/ask_summary.txt.tmpl"))];

/// Behind the name, where other templates have a path.
pub(super) const MARK: &str = " (built in)";

/// The source of one.
pub(super) fn source(name: &str) -> Option<&'static str> {
    ALL.iter().chain(TEXTS).find(|(known, _)| *known == name).map(|(_, source)| *source)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::catalogue::{find_templates, template_name};
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_built_in_and_none_else() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../templates");
        let files: Vec<String> =
            find_templates(&folder).unwrap().iter().map(|path| template_name(&folder, path)).collect();
        let (texts, decisions): (Vec<&str>, Vec<&str>) =
            files.iter().map(String::as_str).partition(|name| name.contains('.'));
        let names = |all: &[(&'static str, &str)]| all.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!((names(ALL), names(TEXTS)), (decisions, texts));
    }
}
