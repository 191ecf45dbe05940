"""What a person means by a message, as far as it decides whether they may be written to again.

Only whole messages count, never words inside another sentence: "vou sair agora" is no wish to unsubscribe, and
"cancelar" alone may be about an order. The first level is what carriers and WhatsApp's users take for an order to stop;
the second is worth a question.
"""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum


class Intent(StrEnum):
    """How sure it is that a person wants no more messages."""

    CERTAIN = "certain"
    PROBABLE = "probable"


LONGEST = 60  # characters; more is a sentence about something
YES_STOP, NO_STAY = "Sim, parar", "Não, continuar"  # the answers to our own question

_CERTAIN = {
    "pt": """sair | parar | pare | descadastrar | descadastre | me descadastre | descadastrar me | quero sair da lista
        | sair da lista | me tira da lista | me tire da lista | me remova da lista | me remova | parar de receber
        | quero parar de receber | parar mensagens | pare de me mandar mensagem | pare de me mandar mensagens
        | para de me mandar mensagem | para de me mandar mensagens | nao quero mais receber
        | nao quero mais receber mensagem | nao quero mais receber mensagens | nao quero receber mensagens
        | nao me mande mais mensagem | nao me mande mais mensagens | nao me mandem mais mensagens
        | cancelar inscricao | cancelar assinatura | cancelar recebimento | sim parar""",
    "es": """baja | darse de baja | darme de baja | dar de baja | quiero darme de baja | no quiero recibir mas mensajes
        | no quiero mas mensajes | no me escriban mas | no me envien mas mensajes | cancelar suscripcion | desuscribir
        | desuscribirme | dejar de recibir | parar mensajes | detener mensajes""",
    "en": """stop | stopall | stop all | unsubscribe | opt out | optout | remove me | remove me from the list
        | remove me from your list | take me off the list | take me off your list | stop messages
        | stop messaging me | stop sending me messages | do not message me | dont message me
        | no more messages | i want to unsubscribe | please stop messaging me""",
}
_PROBABLE = {
    "pt": """cancelar | cancela | chega | para | para com isso | nao quero mais | nao quero | nao tenho interesse
        | sem interesse | nao me interessa | me deixa em paz | spam | isso e spam | quem e voce | encerrar | fim
        | bloquear | vou bloquear | vou denunciar | denunciar""",
    "es": """cancelar | alto | basta | salir | detener | no quiero | no quiero mas | no me interesa | es spam | fin
        | terminar | dejame en paz | voy a denunciar""",
    "en": """cancel | end | quit | enough | not interested | no thanks | no thank you | leave me alone | this is spam
        | who is this | go away""",
}
# What people put around it.
_POLITE = re.compile(
    r"^(?:(?:por favor|pf|pfv|please|ola|oi|hola|hi|hello|bom dia|boa tarde|boa noite|quero|eu quero|quiero"
    r"|i want to|gostaria de) )+|(?: (?:por favor|pf|pfv|please|obrigado|obrigada|gracias|thanks|thank you|ja|now))+$"
)


def _phrases(groups: dict[str, str]) -> frozenset[str]:
    return frozenset(" ".join(phrase.split()) for group in groups.values() for phrase in group.split("|"))


CERTAIN, PROBABLE = _phrases(_CERTAIN), _phrases(_PROBABLE)


def intent_of(text: str) -> Intent | None:
    """Whether a message says, as a whole, that its author wants no more; in Portuguese, Spanish or English."""
    if len(text) > LONGEST:
        return None
    plain = _plain(text)
    spoken = {plain, _POLITE.sub("", plain)}
    if spoken & CERTAIN:
        return Intent.CERTAIN
    return Intent.PROBABLE if spoken & PROBABLE else None


def _plain(text: str) -> str:
    """Small letters without accents, digits, signs and pictures, single blanks between words."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    kept = ("" if unicodedata.combining(char) else char if char.isalnum() else " " for char in letters)
    return " ".join("".join(kept).replace("’", "").split())
