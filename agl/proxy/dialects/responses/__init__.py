"""The parts of the dialect of OpenAI's Responses: items, requests, answers, events, native reading, memory."""
