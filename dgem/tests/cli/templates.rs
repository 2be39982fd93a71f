//! Every policy that ships: it renders with its sample values, passes the check, decides, and keeps its ids and answers.

use std::path::{Path, PathBuf};

use crate::support::{Server, dgem, shipped, stderr, stdout, summary};
use serde_json::{Map, Value, json};

/// Ids, types and answers that datasets and users rely on.
const SHIPPED: &[(&str, &str)] = &[
    ("agent_router", "tool choice search read_code edit_code run_tests ask_user"),
    (
        "code_review",
        "approved boolean; category choice bugfix feature refactor security; risk_level score low medium high critical",
    ),
    (
        "contract_audit",
        "auto_renews boolean; liability_cap choice uncapped capped_12m capped_super; legal_risk score minimal moderate elevated severe_blocker",
    ),
    (
        "intent_banking77",
        "intent choice card_swallowed lost_or_stolen_card card_arrival declined_cash_withdrawal",
    ),
    (
        "intent_clinc150",
        "domain choice kitchen travel banking oos; intent choice cook_time recipe flight_status transfer oos",
    ),
    ("intent_tiebreak", "intent choice pending_transfer failed_transfer transfer_timing"),
    (
        "jevbench_generic",
        "evidence_focus choice explicit_rule_match missing_or_violated_condition override_or_amendment distractor_or_trap_rejected; decision choice admit refuse",
    ),
    (
        "secops_conditional_dag",
        "active_breach choice yes no; threat_vector choice iam_compromise data_exfiltration workload_injection benign_operation; confidence_score score 1 2 3 4 5; containment_action choice revoke_iam_and_snapshots quarantine_pod_egress block_edge_asn freeze_db_replica; blast_radius choice single_service production_data_plane account_wide_root",
    ),
    (
        "security_incident",
        "data_compromise boolean; action choice monitor revoke_key isolate_host page_oncall; severity score p3_low p2_medium p1_high p0_critical",
    ),
    (
        "support_triage",
        "urgent boolean; team choice billing support engineering; sentiment score calm frustrated furious",
    ),
    (
        "taxonomy_discovery",
        "in_taxonomy boolean; primary_category choice billing_and_invoicing account_and_auth platform_reliability security_and_compliance other; novelty_score score none_fits_existing minor_edge_case distinct_sub_category new_top_level_category; expansion_driver choice new_product_area missing_detail overlap off_topic",
    ),
    ("tn_disambiguation", "expansion choice Doctor Drive"),
    ("calibration/agent_step_drift", "drift choice benign injection_point hijacked failed_injection"),
    ("calibration/agent_step_hijack", "hijacked boolean"),
    (
        "calibration/banking77_intent",
        "intent choice activate_my_card age_limit balance_not_updated_after_bank_transfer cancel_transfer card_about_to_expire card_arrival card_payment_fee_charged card_payment_not_recognised card_payment_wrong_exchange_rate card_swallowed cash_withdrawal_charge change_pin contactless_not_working declined_card_payment exchange_rate failed_transfer lost_or_stolen_card pending_transfer pin_blocked request_refund terminate_account top_up_failed transaction_charged_twice transfer_fee_charged transfer_not_received_by_recipient verify_my_identity",
    ),
    ("calibration/boolq_answer", "answer boolean"),
    ("calibration/chaos_nli", "entailment choice entailment neutral contradiction"),
    ("calibration/civil_comments_toxicity", "toxic boolean; severity score 1 2 3 4 5"),
    ("calibration/civil_comments_toxicity_rate", "toxicity_rate score 0.0 0.2 0.5 0.7 0.9"),
    (
        "calibration/clinc_oos_intent",
        "intent choice alarm balance book_flight cook_time directions play_music reminder report_lost_card timer translate weather out_of_scope",
    ),
    (
        "calibration/go_emotions_emotion",
        "emotion choice admiration amusement anger annoyance approval caring confusion curiosity desire disappointment disapproval disgust embarrassment excitement fear gratitude joy love optimism pride realization relief remorse sadness surprise neutral",
    ),
    ("calibration/grounding_claim_check", "supported boolean"),
    ("calibration/ms_marco_relevance", "relevant boolean"),
    ("calibration/prompt_injection", "injection boolean"),
    ("calibration/sst5_sentiment", "sentiment score 0 1 2 3 4"),
    ("calibration/yelp_stars", "stars score 1 2 3 4 5"),
    ("docs/docs_claim_evidence", "evidence choice measured cited illustrated unsupported"),
    (
        "docs/docs_diataxis",
        "doc_type choice tutorial how_to reference explanation release_note other; purity score mixed mostly_pure pure",
    ),
    (
        "docs/docs_style_audit",
        "voice choice active passive; person choice second_person impersonal; tense choice present other; sentences choice short long; wording choice direct hedged; jargon choice plain unexplained; verdict score publish light_edit rewrite",
    ),
    (
        "multimodal/bbox_localization",
        "object_present boolean; ymin choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; xmin choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; ymax choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; xmax choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100",
    ),
    (
        "multimodal/bbox_multi_object_detr",
        "object_1_class choice cup book no_object; object_1_ymin choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; object_1_xmin choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; object_1_ymax choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; object_1_xmax choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; object_2_class choice cup book no_object; object_2_ymin choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; object_2_xmin choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; object_2_ymax choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; object_2_xmax choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100",
    ),
    (
        "multimodal/bbox_multi_object_set",
        "mug_present boolean; mug_ymin choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; mug_xmin choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; mug_ymax choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; mug_xmax choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; lamp_present boolean; lamp_ymin choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; lamp_xmin choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; lamp_ymax choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100; lamp_xmax choice 00 05 10 15 20 25 30 35 40 45 50 55 60 65 70 75 80 85 90 95 100",
    ),
    (
        "multimodal/call_quality_audio",
        "mandatory_disclosure_read boolean; resolution_outcome choice resolved follow_up_scheduled escalated unresolved; agent_empathy score dismissive neutral attentive exemplary; customer_final_sentiment score angry dissatisfied neutral satisfied delighted",
    ),
    (
        "multimodal/kyc_document_audit",
        "document_legible boolean; document_type choice passport drivers_license national_id unsupported; tampering_suspected boolean; image_quality score unusable poor acceptable pristine",
    ),
    (
        "multimodal/pcb_defect_triage",
        "defect_detected boolean; defect_type choice none solder_bridge missing_component tombstoning misalignment; action_tier score pass minor_rework scrap_and_halt_line",
    ),
    (
        "multimodal/ui_design_review",
        "wcag_contrast_pass boolean; primary_call_to_action choice checkout_button promotional_banner nav_menu none_diffuse; visual_density score sparse balanced_modern cramped_cluttered",
    ),
    (
        "multimodal/vision_aspects",
        "present boolean; grid_cell choice top_left top_centre top_right middle_left middle_centre middle_right bottom_left bottom_centre bottom_right; element_count choice 1 2 3 4; image_quality choice sharp blurred dark overexposed noisy; relation choice left_of right_of above below; occluded boolean",
    ),
    (
        "multimodal/vision_aspects_generic",
        "present boolean; grid_cell choice top_left top_centre top_right middle_left middle_centre middle_right bottom_left bottom_centre bottom_right; relation choice left_of right_of above below; occluded boolean",
    ),
    (
        "multimodal/workplace_hazard_video",
        "ppe_compliant boolean; primary_hazard choice none forklift_pedestrian spill_slip blocked_egress improper_lifting; urgency score routine soon immediately",
    ),
    (
        "rerank/listwise_decision_rerank",
        "answer_present boolean; poisoned_passage choice none doc_01 doc_02 doc_03 doc_04 doc_05 doc_06 doc_07 doc_08 doc_09 doc_10; doc_01 score irrelevant marginal complementary exact_answer; doc_02 score irrelevant marginal complementary exact_answer; doc_03 score irrelevant marginal complementary exact_answer; doc_04 score irrelevant marginal complementary exact_answer; doc_05 score irrelevant marginal complementary exact_answer; doc_06 score irrelevant marginal complementary exact_answer; doc_07 score irrelevant marginal complementary exact_answer; doc_08 score irrelevant marginal complementary exact_answer; doc_09 score irrelevant marginal complementary exact_answer; doc_10 score irrelevant marginal complementary exact_answer",
    ),
    (
        "rerank/pointwise_rerank",
        "relevant boolean; grade score irrelevant marginal complementary exact_answer",
    ),
];

/// All decisions below the folder, as the program itself lists them; a text has a dot in its name.
fn names() -> Vec<String> {
    let folder = shipped("");
    let output = dgem().args(["template", "list"]).arg(&folder).output().unwrap();
    assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
    stdout(&output)
        .lines()
        .skip(2)
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|name| !name.contains('.'))
        .collect()
}

fn file(name: &str) -> PathBuf {
    shipped(&format!("{name}.json.tmpl"))
}

fn rendered(path: &Path, arguments: &[&str]) -> Value {
    let output = dgem().args(["template", "render", "-t"]).arg(path).args(arguments).output().unwrap();
    assert!(output.status.success() && stderr(&output).is_empty(), "{}: {}", path.display(), stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// The sample values in the metadata comment.
fn samples(path: &Path) -> Value {
    let source = std::fs::read_to_string(path).unwrap();
    let comment = source.split_once("dgem:").and_then(|(_, rest)| rest.split_once("#}")).unwrap().0;
    serde_json::from_str::<Value>(comment).unwrap()["sample"].take()
}

/// A reply that gives every question its first answer.
fn first_answers(schema: &Value) -> Value {
    let mut answers = Map::new();
    for question in schema["questions"].as_array().unwrap() {
        let kind = question["type"].as_str().unwrap();
        let names: Vec<&str> = match kind {
            "boolean" => vec!["yes", "no"],
            "choice" => question["options"]
                .as_array()
                .unwrap()
                .iter()
                .map(|option| option["name"].as_str().unwrap())
                .collect(),
            _ => question["levels"].as_array().unwrap().iter().map(|level| level.as_str().unwrap()).collect(),
        };
        let probabilities: Map<String, Value> = names
            .iter()
            .enumerate()
            .map(|(index, name)| ((*name).to_owned(), json!(if index == 0 { 1.0 } else { 0.0 })))
            .collect();
        let mut answer = json!({"type": kind, "confidence": 1.0, "probabilities": probabilities, "entropy": 0.0, "hesitation": 0.0});
        match kind {
            "boolean" => (answer["label"], answer["noul"]) = (json!("yes"), json!(1.0)),
            "choice" => (answer["label"], answer["choice"]) = (json!("A"), json!(names[0])),
            _ => {
                (answer["label"], answer["level"], answer["score"]) =
                    (json!("1"), json!(names[0]), json!(1.0));
            }
        }
        answers.insert(question["id"].as_str().unwrap().to_owned(), answer);
    }
    json!({"answers": answers})
}

#[test]
fn every_shipped_template_keeps_its_ids_types_and_answers() {
    let found: Vec<(String, String)> = names()
        .into_iter()
        .map(|name| {
            let questions = summary(&rendered(&file(&name), &["--sample"])["schema"]);
            (name, questions)
        })
        .collect();
    let expected: Vec<(String, String)> =
        SHIPPED.iter().map(|(name, questions)| ((*name).to_owned(), (*questions).to_owned())).collect();
    assert_eq!(found, expected);
}

#[test]
fn every_shipped_template_passes_the_check_without_a_warning() {
    for name in names() {
        let output = dgem().args(["template", "check"]).arg(file(&name)).output().unwrap();
        let text = stdout(&output);
        let mut warnings: Vec<&str> = text.lines().skip(1).collect();
        // Grading ten passages at once is what this one is for.
        warnings.retain(|warning| {
            !(name == "rerank/listwise_decision_rerank" && warning.contains("12 questions"))
        });
        assert!(output.status.success() && warnings.is_empty(), "{name}: {text}");
    }
}

#[test]
fn every_shipped_template_decides_with_what_render_shows() {
    for name in names() {
        let path = file(&name);
        let document = rendered(&path, &["--sample"]);
        let server = Server::deciding(&first_answers(&document["schema"]));
        let output = dgem()
            .args(["decide", "-f", "json", "-u", &server.url, "-d", &samples(&path).to_string(), "-t"])
            .arg(&path)
            .output()
            .unwrap();
        // The states of policies about pictures are whole without one.
        let told = stderr(&output).lines().any(|line| !line.contains("expects an image"));
        assert!(output.status.success() && !told, "{name}: {}", stderr(&output));
        let request = server.request();
        assert_eq!(request.schema(), document["schema"], "{name}");
        let state = &document["state"];
        assert_eq!(serde_json::from_str::<Value>(&request.state()).unwrap(), *state, "{name}");
        let answers: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(
            answers["answers"].as_object().unwrap().len(),
            document["schema"]["questions"].as_array().unwrap().len(),
            "{name}"
        );
    }
}

#[test]
fn the_number_of_draws_can_be_given_to_every_template() {
    for name in names() {
        let schema = &rendered(&file(&name), &["--sample", "-v", "samples=3"])["schema"];
        assert_eq!(schema["samples"], 3, "{name}");
    }
}
