"""What counts as a wish to get no more messages."""

from __future__ import annotations

import pytest

from messaging.intents import NO_STAY, YES_STOP, Intent, intent_of


@pytest.mark.parametrize(
    "text",
    [
        "SAIR", "sair", " Sair. ", "PARAR!!!", "pare", "Descadastrar", "me descadastre por favor",
        "quero sair da lista",
        "Não quero mais receber mensagens", "nao quero mais receber", "Por favor, parar de receber", "🛑 PARAR 🛑",
        "Cancelar inscrição", YES_STOP,
        "BAJA", "Quiero darme de baja", "no quiero más mensajes", "Cancelar suscripción",
        "por favor, darme de baja gracias",
        "STOP", "Stop.", "stop all", "Unsubscribe", "please stop messaging me", "Remove me from your list", "opt-out",
    ],
)  # fmt: skip
def test_believes_a_clear_word(text: str) -> None:
    assert intent_of(text) == Intent.CERTAIN


@pytest.mark.parametrize(
    "text",
    [
        "cancelar",
        "Chega!",
        "não tenho interesse",
        "isso é spam",
        "basta",
        "no me interesa",
        "Cancel",
        "quit",
        "no thanks",
    ],
)  # fmt: skip
def test_asks_where_it_is_not_sure(text: str) -> None:
    assert intent_of(text) == Intent.PROBABLE


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "👍", "oi", "obrigado", NO_STAY,
        "vou sair agora, pode entregar?", "Pode parar na portaria", "quero cancelar o pedido 1042",
        "não quero cancelar", "para quando fica pronto?", "sair de casa às 8", "parar o carro onde?",
        "me tira uma dúvida", "quero parar de pagar frete", "baja el precio", "¿me das de baja el plan familiar?",
        "don't stop, I love it", "stop by the shop tomorrow", "please cancel my order", "the end of the street",
        "Eu não quero mais receber o produto com defeito", "remove the onions please", "unsubscribe link is broken",
        "não para de chover", "descadastrar o cartão antigo e cadastrar outro", "x" * 10_000, "stop " * 20,
    ],
)  # fmt: skip
def test_leaves_words_inside_other_sentences_alone(text: str) -> None:
    assert intent_of(text) is None
